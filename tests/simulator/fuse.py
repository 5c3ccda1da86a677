"""The fuse enforces a user that was just charged for an id beyond its quota, and for HELD_S at least."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pidgate.gateway.logs import Event
from pidgate.quota.fuse import AUTHOR
from tests.simulator import admissions, quota_bound, wiretap
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

    Charges are stated of one gateway: in a fleet the ids of the other one are charged when the topic brings them.
    """
    quotas = world.setup.quotas
    rates = quota_bound.rates_of(world)
    if quotas.fuse is None or not all(rates) or any(what == "clock" for _, what, *_ in world.fleet.history):
        return
    owes_s = DEBT * quotas.window_ms / 1_000 / min(rates) + LOOKED_S
    charged = None if world.setup.shape.is_fleet else _charged(world)
    since_s: dict[str, float] = {}
    for line in world.machine.lines:
        if line.fields.get("set_by") != AUTHOR:
            continue
        user = str(line.fields.get("user"))
        if line.event == Event.QUOTA_CHANGE_ENDED:
            held_s = line.at_s - since_s.get(user, 0.0)
            if held_s < HELD_S:
                raise ModelViolation(f"the fuse let go of {user} after {held_s:.1f} s")
        elif line.fields["set_through"] == line.process:
            since_s[user] = line.at_s
            if charged is None or line.fields["before"] == "enforce":
                continue
            if not any(line.at_s - owes_s <= at_s <= line.at_s for at_s in charged.get(user, ())):
                raise ModelViolation(
                    f"the fuse enforced {user} below its quota at {line.at_s - BEGAN_S:.3f}: {line.fields['note']}"
                )


def _charged(world: World) -> dict[str, list[float]]:
    """Return when the gateway may have charged users for ids: at the first sight of each of its runs, once restored.

    A run that restores less than there was charges an id again.
    """
    found: dict[str, list[float]] = {}
    known: set[tuple[wiretap.Run, str, int, bool]] = set()
    for frame, is_hostile in wiretap.all_written_to_brokers(world):
        run = wiretap.run_of(world, frame)
        for used in admissions.used(world, frame, is_hostile):
            if (run, *used) not in known:
                known.add((run, *used))
                restored_s = quota_bound.restored_s(world, *run)
                found.setdefault(used[0], []).append(max(frame.at_s, restored_s))
    return found
