"""One run from its first connection to its last answer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pidgate import open_files
from pidgate.load.context import Context, end_task
from pidgate.load.one_by_one import CrashLoop, IdPerBatch
from pidgate.load.pacing import pace
from pidgate.load.plan import Kind, Plan
from pidgate.load.schedule import Due, schedule
from pidgate.load.steady import SteadyProducer
from pidgate.load.tally import Latency, Tally
from pidgate.load.transactional import Transactional

_BEGIN_AT_ONCE: Final = 100
_BEGIN_WITHIN_S: Final = 10.0
_LEAD_S: Final = 0.05
_LOOK_S: Final = 0.02
_SHOW_EVERY_S: Final = 1.0

Tallies = Mapping[Kind, Tally]
Show = Callable[[float, Tallies], None]
"""Called once a second: seconds since the start, counts so far."""


class SyntheticProducer(Protocol):
    """One producer of a kind."""

    @property
    def is_quiet(self) -> bool: ...

    async def begin(self) -> None: ...

    def due(self, due_s: float) -> None: ...

    def over(self, end_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run."""

    plan: Plan
    tallies: Tallies
    seconds: float
    """From the first due moment to the last answer, or to the end of waiting for it."""
    own_delay: Latency
    """Delays of the generator itself in handing out what was due."""
    not_begun: int
    """Producers that had no connection or producer id when sending began."""
    was_stopped: bool


def _make(kind: Kind, context: Context, tally: Tally, number: int) -> SyntheticProducer:
    match kind:
        case Kind.CRASH_LOOPING:
            return CrashLoop(context, tally, number)
        case Kind.ID_PER_BATCH:
            return IdPerBatch(context, tally, number)
        case Kind.TRANSACTIONAL:
            return Transactional(context, tally, number)
        case _:
            return SteadyProducer(context, tally, number, new_on_error=kind is Kind.NEW_ON_ERROR)


async def run(plan: Plan, show: Show, stop: asyncio.Event) -> Result:
    """Carry out the plan. Raises NothingReached, TopicMissing, LoginRefused, KafkaProtocolError."""
    open_files.allow_most()
    context = Context.of(plan)
    await context.cluster.open()
    tallies = {kind: Tally() for kind, count in plan.counts.items() if count}
    producers = {
        kind: [_make(kind, context, tally, number) for number in range(plan.counts[kind])]
        for kind, tally in tallies.items()
    }
    everybody = [producer for group in producers.values() for producer in group]
    loop = asyncio.get_running_loop()
    beginning = _begin(everybody)
    await _unless_stopped(asyncio.wait(beginning, timeout=_BEGIN_WITHIN_S), stop)
    not_begun = sum(not task.done() for task in beginning)
    gc.collect()
    gc.freeze()
    start_s = loop.time() + _LEAD_S

    def hand_out(due: Due) -> None:
        after_s, kind, number = due
        group = producers[kind]
        group[number % len(group)].due(start_s + after_s)

    showing = asyncio.ensure_future(_show(show, tallies, start_s))
    try:
        batches = schedule({kind: plan.rates_per_s[kind] for kind in tallies}, plan.duration_s, plan.seed)
        own_delay = await pace(batches, start_s, hand_out, stop)
        await _unless_stopped(_drained(everybody, plan.drain_s), stop)
    finally:
        end_s = loop.time()
        showing.cancel()
        for task in beginning:
            end_task(task)
        for producer in everybody:
            producer.over(end_s)
        gc.unfreeze()
    return Result(plan, tallies, max(end_s - start_s, 0.0), own_delay, not_begun, stop.is_set())


def _begin(everybody: Sequence[SyntheticProducer]) -> list[asyncio.Task[None]]:
    room = asyncio.Semaphore(_BEGIN_AT_ONCE)

    async def begin(producer: SyntheticProducer) -> None:
        async with room:
            await producer.begin()

    return [asyncio.ensure_future(begin(producer)) for producer in everybody]


async def _drained(everybody: Sequence[SyntheticProducer], within_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while not all(producer.is_quiet for producer in everybody):  # noqa: ASYNC110 - no event is worth it
                await asyncio.sleep(_LOOK_S)


async def _unless_stopped(work: Coroutine[Any, Any, object], stop: asyncio.Event) -> None:
    """Wait for the work, or for the stop event."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    working.cancel()
    stopping.cancel()


async def _show(show: Show, tallies: Tallies, start_s: float) -> None:
    loop = asyncio.get_running_loop()
    for second in range(1, 1 << 31):
        await asyncio.sleep(start_s + second * _SHOW_EVERY_S - loop.time())
        show(loop.time() - start_s, tallies)
