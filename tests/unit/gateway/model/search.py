"""All interleavings of a small world: depth first, equal states once.

A state is the pickled world; what only counts (counters, trace) is taken out first, so that two ways to the same
state meet. What the gateway hands on reaches its broker, and the answer its connection, at once: between them lies
nothing to choose. Reading an answer is a step of its own.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable
from dataclasses import dataclass

from pidgate.gateway.proxy.apis.api import Api
from pidgate.gateway.proxy.apis.produce import THROTTLED_PRODUCE
from pidgate.gateway.proxy.apis.table import APIS, NOT_OFFERED
from pidgate.quota.counters import UserCountersTable
from tests.simulator.clients.batches import ModelViolation
from tests.unit.gateway.model.steps import Step, apply, moves, sends
from tests.unit.gateway.model.world import World, real_admission

HANDLERS = list({id(api): api for api in (NOT_OFFERED, THROTTLED_PRODUCE, *APIS.values())}.values())


def _handler(index: int) -> Api:
    return HANDLERS[index]


for _kind in {type(api) for api in HANDLERS}:
    # There is one of each: a world that is copied goes on with the same.
    copyreg.pickle(_kind, lambda api: (_handler, (HANDLERS.index(api),)))


@dataclass(slots=True)
class Found:
    """What the search saw."""

    states: int = 0
    steps: int = 0
    drained: int = 0
    longest_drain_ms: int = 0
    violation: str | None = None
    """The first violation, with its schedule."""


def search(world: World, depth: int, *, extra: Callable[[World], list[Step]], drain_every: int = 0) -> Found:
    """Try every schedule of up to `depth` steps. `extra`: what may happen besides sending, reading, moving, time.

    drain_every: of so many states one is run to its end, within the bound.
    """
    found = Found()
    best: dict[bytes, int] = {}
    world._admission = real_admission  # a factory may be a closure, and no process starts anew here
    start = _pickled(world)
    stack: list[tuple[bytes, tuple[Step, ...]]] = [(start, ())]
    while stack:
        state, path = stack.pop()
        left = depth - len(path)
        if best.get(state, -1) >= left:
            continue
        if state not in best:
            found.states += 1
            if drain_every and found.states % drain_every == 0 and not _drains(state, found):
                found.violation = _story(start, path, drains=True)
                return found
        best[state] = left
        if left == 0:
            continue
        for step in _steps(pickle.loads(state), extra):
            follower: World = pickle.loads(state)
            found.steps += 1
            try:
                _make(follower, step)
            except ModelViolation:
                found.violation = _story(start, (*path, step))
                return found
            stack.append((_pickled(follower), (*path, step)))
    return found


def _steps(world: World, extra: Callable[[World], list[Step]]) -> list[Step]:
    reads: list[Step] = [("read", *key) for key, channel in world.channels.items() if channel.to_client]
    steps = sends(world) + reads + moves(world) + extra(world)
    mute_end_ms = world.next_mute_end_ms(holding=False)
    if mute_end_ms is not None:
        steps.append(("advance", mute_end_ms - world.now_ms))
    return steps


def _make(world: World, step: Step) -> None:
    apply(world, step)
    for channel in list(world.channels.values()):
        while channel.to_broker:
            world.append(channel)
        while channel.from_broker:
            world.answer(channel)


def _drains(state: bytes, found: Found) -> bool:
    world: World = pickle.loads(state)
    try:
        found.longest_drain_ms = max(found.longest_drain_ms, world.drain())
    except ModelViolation:
        return False
    found.drained += 1
    return True


def _story(start: bytes, path: tuple[Step, ...], *, drains: bool = False) -> str:
    """What went wrong, and the schedule that leads there, played again with its trace."""
    world: World = pickle.loads(start)
    try:
        for step in path:
            _make(world, step)
        if drains:
            world.drain()
    except ModelViolation as violation:
        return f"{violation}\n{world.story()}"
    return f"not seen again after {path}"


def _pickled(world: World) -> bytes:
    trace, world.trace = world.trace, []
    world.taken.clear()
    for admission in world.processes:
        admission.counters = UserCountersTable()
    state = pickle.dumps(world, protocol=5)
    world.trace = trace
    return state
