"""Play a schedule: from its beginning to its end, with all checks."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from pidgate.gateway.proxy.reading import LINGER_S
from tests.simulator import checks, memory, steps, story, waiting
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.loop import SimulationFailed
from tests.simulator.machine import Machine
from tests.simulator.schedule import Schedule
from tests.simulator.world import World

MOST_S: Final = 7_200.0
"""Of virtual time: a run that takes longer stands still."""

TRANSACTION_TIMEOUT_S: Final = 75.0
"""Of the clients, and until the coordinator looks."""
SETTLED_S: Final = 2.0
"""After the last answer: markers of transactions are written, followers have fetched."""
GONE_S: Final = 1.0
"""After the last client: its connections are closed on both sides."""
MUTES_S: Final = 60.0
"""Until the mutes of the requests that a connection holds are over, one after the other."""
_LOOK_S: Final = 0.5
_LOOK_AT_MEMORY_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Result:
    """`violation`: empty if nothing was wrong. `story`: empty unless it was asked for.

    `idle`: which steps are known to have done nothing. `carried`: what lanes did, and what was done to them.
    """

    violation: str
    story: str = ""
    idle: tuple[int, ...] = ()
    carried: Counter[str] = field(default_factory=Counter)


def play(schedule: Schedule, *, is_told: bool = False) -> Result:
    """Play it. Never raises for what the system under test does."""
    violation = ""
    with Machine(schedule.seed) as machine:
        world = World(schedule, machine, is_told=is_told)
        try:
            world.loop.run(_main(world), most_s=MOST_S)
        except (ModelViolation, SimulationFailed) as error:
            violation = str(error)
        return Result(violation, story.told(world) if is_told else "", tuple(world.idle), machine.carried)


async def _main(world: World) -> None:
    await world.start()
    if world.setup.is_long_known:
        await world.grow_old()
    loop = world.loop
    began_s = world.steps_began_s = loop.time()
    for number, step in enumerate(world.schedule.steps):
        await _until(world, began_s + step[0] / 1_000)
        if not steps.apply(world, step):
            world.idle.append(number)
        _look(world)
    await world.end_faults()
    await _drain(world)
    checks.at_end(world)
    world.crash_all()
    await _all_gone(world)
    await world.stop()


async def _all_gone(world: World) -> None:
    """Wait until gateways hold nothing any more. Raises ModelViolation.

    A client that read nothing keeps its connection for LINGER_S. Where memory is little gateways may not be reading,
    and see that a client has gone when its mutes are over.
    """
    loop, is_little = world.loop, world.setup.buffered_total_bytes is not None
    over_s = loop.time() + (MUTES_S if is_little else LINGER_S)
    while True:
        await asyncio.sleep(GONE_S)
        try:
            return memory.nothing_held(world)
        except ModelViolation:
            if loop.time() > over_s:
                raise


async def _until(world: World, at_s: float) -> None:
    """Let time pass; where memory is little it is looked at meanwhile. Raises ModelViolation."""
    loop = world.loop
    if world.setup.buffered_total_bytes is not None:
        while at_s - loop.time() > _LOOK_AT_MEMORY_S:
            await asyncio.sleep(_LOOK_AT_MEMORY_S)
            memory.within_limits(world)
    await asyncio.sleep(max(0.0, at_s - loop.time()))


async def _drain(world: World) -> None:
    """Wait until everybody knows the end of all he sent. Raises ModelViolation when that takes too long."""
    world.note("* from here on everything runs to its end")
    began_s, bound_s = world.loop.time(), waiting.drain_bound_s(world)
    while waiters := [application for application in world.everybody if not application.is_idle]:
        await asyncio.sleep(_LOOK_S)
        _look(world)
        if world.loop.time() - began_s > bound_s:
            checks.waits_without_fault(world, waiters, bound_s)
            break
    await _read_all(world)
    if any(application.setup.is_transactional and application.is_cut_off for application in world.everybody):
        # What it has left open is aborted; until then nobody who reads committed sees what comes after it.
        world.end_cut_off()
        world.loop.now_s += TRANSACTION_TIMEOUT_S
    await asyncio.sleep(SETTLED_S)


async def _read_all(world: World) -> None:
    """Wait until readers have all that can be read. Raises ModelViolation, SimulationFailed when they get no more."""
    if not world.readers:
        return
    began_s, bound_s = world.loop.time(), waiting.reading_bound_s(world)
    partitions = range(world.setup.partitions)
    world.read_to = ends = [world.cluster.partition(world.topic, n).high_watermark for n in partitions]
    while any(reader.position[n] < end for reader in world.readers.values() for n, end in enumerate(ends)):
        await asyncio.sleep(_LOOK_S)
        _look(world)
        if world.loop.time() - began_s > bound_s:
            world.loop.check()
            raise ModelViolation(f"readers have {[one.position for one in world.readers.values()]} of {ends}")


def _look(world: World) -> None:
    """Raise SimulationFailed as soon as something has gone wrong; what ended with an error may yet be looked at.

    Raises ModelViolation, too, for what can be seen at once.
    """
    if world.loop.failures:
        world.loop.check()
    checks.at_step(world)
