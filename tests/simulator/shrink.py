"""Make a failing schedule small: delta debugging over its steps, its clients and its setup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from tests.simulator.schedule import Schedule, Setup, Step, Weather

Fails = Callable[[Schedule], bool]

_SIMPLER: dict[str, Any] = {
    "is_replicated_late": False,
    "has_login": False,
    "has_state_dir": False,
    "has_events": False,
    "is_long_known": False,
    "lend_after": None,
    "lanes_only_look": False,
    "passes_on": False,
    "fresh_partitions": 0,
    "readers": (),
    "buffered_total_bytes": None,
    "weather": Weather.CALM,
    "brokers": 1,
    "partitions": 1,
}


def shrunk(schedule: Schedule, fails: Fails) -> Schedule:
    """Return a schedule that still fails, of which no part can be left out by itself."""
    while True:
        smaller = _without_steps(schedule, fails)
        smaller = next((one for one in _simpler(smaller) if fails(one)), smaller)
        if smaller == schedule:
            return schedule
        schedule = smaller


def _without_steps(schedule: Schedule, fails: Fails) -> Schedule:
    """Leave out steps: halves, quarters, single ones, as long as it fails."""
    steps = schedule.steps
    size = max(1, len(steps) // 2)
    while steps:
        at = 0
        while at < len(steps):
            left: tuple[Step, ...] = steps[:at] + steps[at + size :]
            if fails(replace(schedule, steps=left)):
                steps = left
            else:
                at += size
        if size == 1:
            break
        size //= 2
    return replace(schedule, steps=steps)


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    """Yield the same schedule with one thing less."""
    setup = schedule.setup
    for number in range(len(setup.clients)):
        clients = setup.clients[:number] + setup.clients[number + 1 :]
        yield replace(schedule, setup=replace(setup, clients=clients))
    for field in fields(Setup):
        if field.name in _SIMPLER and getattr(setup, field.name) != _SIMPLER[field.name]:
            yield replace(schedule, setup=replace(setup, **{field.name: _SIMPLER[field.name]}))
    for number, step in enumerate(schedule.steps):
        for smaller in _smaller(step):
            yield replace(schedule, steps=(*schedule.steps[:number], smaller, *schedule.steps[number + 1 :]))


def _smaller(step: Step) -> Iterator[Step]:
    """Yield a step of fewer batches or rogues."""
    if step[1] in ("send", "rogues") and step[-1] > 1:
        yield (*step[:-1], 1)
