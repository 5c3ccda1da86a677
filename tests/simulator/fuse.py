"""The fuse enforces a user above its own quota alone, and does not let go at the first moment below its line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pidgate.gateway.logs import Event
from pidgate.quota.fuse import AUTHOR
from tests.simulator import admissions, quota_bound
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.loop import BEGAN_S

if TYPE_CHECKING:
    from tests.simulator.world import World

HELD_S: Final = 300.0
"""How long one decision of the fuse holds at least: half of its time, which gateways count by their own clocks."""
LOOKED_S: Final = 1.5
"""The fuse looks once a second."""
DEBT: Final = 2
"""Tokens that an observed user owes at most, and one that it gets back."""


def check(world: World) -> None:
    """Raise ModelViolation. Nothing is stated of a rate of 0, nor of times by a clock that was set.

    Whether a user was above its quota is stated of one gateway without transactions and hostile clients: in a fleet the
    other gateway's ids are charged when they are heard of, which may be long after they came.
    """
    quotas = world.setup.quotas
    rates = quota_bound.rates_of(world)
    if quotas.fuse is None or not all(rates) or any(what == "clock" for _, what, *_ in world.fleet.history):
        return
    is_plain = (
        not world.setup.shape.is_fleet
        and not any(one.is_transactional for one in world.setup.clients)
        and not any(step[1] == "rogues" for step in world.schedule.steps)
    )
    brought = admissions.producer_ids(world)
    owes_s = DEBT * quotas.window_ms / 1_000 / min(rates) + LOOKED_S
    for line in world.machine.logged(Event.QUOTAS_CHANGED):
        user = str(line.fields.get("user"))
        is_first = line.fields["before"] != "enforce" and line.fields["set_through"] == line.process
        if line.fields["set_by"] != AUTHOR or not is_first or not is_plain:
            continue
        if not any(line.at_s - owes_s <= one.at_s <= line.at_s for one in brought.get(user, ())):
            raise ModelViolation(
                f"the fuse enforced {user} below its quota at {line.at_s - BEGAN_S:.3f}: {line.fields['note']}"
            )
    for ended in world.machine.logged(Event.QUOTA_CHANGE_ENDED):
        if ended.fields["set_by"] != AUTHOR:
            continue
        user = str(ended.fields.get("user"))
        since_s = max(
            (
                line.at_s
                for line in world.machine.logged(Event.QUOTAS_CHANGED)
                if line.fields["set_by"] == AUTHOR
                and line.fields.get("user") == user
                and line.fields["set_through"] == line.process
                and line.at_s <= ended.at_s
            ),
            default=ended.at_s - HELD_S,
        )
        if ended.at_s - since_s < HELD_S:
            raise ModelViolation(f"the fuse let go of {user} after {ended.at_s - since_s:.1f} s")
