"""What is rare: little memory, short tables, quotas of all together, a slow disk. Beside a theme.

Drawn from a generator of its own, so that a theme's schedules stay what they are where nothing of this is in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.simulator.clients.traits import READINGS
from tests.simulator.schedule import Schedule, Setup, Shape

BUFFERED_BYTES: Final = (64 * 1024, 128 * 1024)
"""A request of the ordinary clients takes up to 55 KiB then."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How often each is in a schedule."""

    little_memory: float = 0.0
    more_quotas: float = 0.0
    slow_disk: float = 0.0
    states: float = 0.0
    """A quota on producer states, or a fuse while users are observed."""


LENT_AFTER: Final = (None, 0, 0, 1)
"""Lanes are in three schedules of four, and lend soon: a story is short."""


def with_lanes(schedule: Schedule) -> Schedule:
    """Return the schedule with lanes in its gateways, or without, where it does not say that itself."""
    if schedule.setup.lend_after is not None:
        return schedule
    lend_after = Random(f"{schedule.seed}/lanes").choice(LENT_AFTER)
    return replace(schedule, setup=replace(schedule.setup, lend_after=lend_after))


def with_rarities(schedule: Schedule, chances: Chances) -> Schedule:
    """Return the schedule with what is rare in it, at these chances."""
    if schedule.setup.shape is Shape.DIRECT:
        return schedule
    random = Random(f"{schedule.seed}/rarities")
    setup = schedule.setup
    if random.random() < chances.little_memory:
        # Requests are large then, and a byte rate would let one pass in minutes.
        quotas = replace(setup.quotas, producer_byte_rate=None)
        setup = replace(setup, buffered_total_bytes=random.choice(BUFFERED_BYTES), quotas=quotas)
    if random.random() < chances.more_quotas:
        setup = _more(random, setup)
    steps = schedule.steps
    if random.random() < chances.slow_disk:
        at_ms = random.randrange(1 + schedule.length_ms)
        slow = at_ms, "slow disk", random.choice((100, 1_000)), random.choice((400, 1_500, 6_000))
        steps = tuple(sorted((*steps, slow), key=lambda step: step[0]))
    return replace(schedule, setup=_with_states(schedule.seed, setup, chances.states), steps=steps)


def _with_states(seed: int, setup: Setup, chance: float) -> Setup:
    random = Random(f"{seed}/states")
    if random.random() >= chance:
        return setup
    if setup.quotas.is_enforced:
        return replace(setup, quotas=replace(setup.quotas, states_rate=random.choice((1, 2, 4))))
    return replace(setup, quotas=replace(setup.quotas, fuse=random.choice((1, 2, 4))))


def _more(random: Random, setup: Setup) -> Setup:
    quotas = setup.quotas
    kinds = ["cluster", "tables", "readers"]
    if setup.buffered_total_bytes is None:
        kinds.append("bytes")
    if any(client.is_transactional for client in setup.clients):
        kinds += ["transactional"] * 2
    kind = random.choice(kinds)
    if kind == "cluster":
        quotas = replace(quotas, cluster_rate=random.choice((1, 2, 3)))
    elif kind == "tables":
        quotas = replace(quotas, sticky_entries=random.choice((3, 4)), queue=random.choice((0, 1, 2)))
    elif kind == "bytes":
        quotas = replace(quotas, producer_byte_rate=random.choice((200, 500, 2_000)))
    elif kind == "transactional":
        quotas = replace(quotas, transactional_ids_rate=random.choice((1, 2)))
    else:
        rate = None if setup.buffered_total_bytes is not None else random.choice((None, 300, 1_000))
        quotas = replace(quotas, consumer_byte_rate=rate)
    return replace(setup, quotas=quotas, readers=_readers(random) if kind == "readers" else ())


def _readers(random: Random) -> tuple[str, ...]:
    return tuple(random.choices(list(READINGS), k=random.choice((1, 2))))
