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
from pidgate.load.journal import ProducerJournal
from pidgate.load.loops import ConnectLoop, CrashLoop, FetchLoop, IdPerBatch
from pidgate.load.pacing import Due, pace, schedule
from pidgate.load.plan import Kind, Plan
from pidgate.load.steady import SteadyProducer
from pidgate.load.tally import Latency, Tally
from pidgate.load.transactional import Transactional

_PREPARED_AT_ONCE: Final = 100
_LEAD_S: Final = 0.05
_POLL_S: Final = 0.02
_SHOW_EVERY_S: Final = 1.0

Tallies = Mapping[str, Tally]
Show = Callable[[float, Tallies], None]
"""Called once a second: seconds since the start, counts so far."""


class Client(Protocol):
    """One client of a kind."""

    @property
    def is_quiet(self) -> bool:
        """Return whether all its work is done."""

    async def prepare(self) -> None: ...

    def queue_work(self, due_s: float) -> None: ...

    def work_endlessly(self, is_endless: bool) -> None: ...

    def end_run(self, end_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Group:
    """Clients of one kind, which take turns."""

    clients: Sequence[Client]
    tally: Tally
    rate_per_s: float | None
    """None: as fast as the answers come."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run."""

    plan: Plan
    tallies: Tallies
    seconds: float
    """From the end of the warm-up to the last answer, or to the end of waiting for it."""
    own_delay: Latency
    """Delays of the generator itself in handing out work that was due."""
    not_prepared: int
    """Clients that had no connection or producer id when sending began."""
    was_stopped: bool


def show_nothing(_seconds: float, _tallies: Tallies) -> None:
    """Do nothing."""


async def run(
    plan: Plan,
    stop: asyncio.Event,
    *,
    show: Show = show_nothing,
    journal: ProducerJournal | None = None,
    mark: Callable[[], None] = lambda: None,
) -> Result:
    """Carry out the plan; see `play`. Raises NothingReached, TopicMissing, LoginRefused, KafkaProtocolError."""
    context = Context.of(plan, journal)
    await context.cluster.open()
    groups: dict[str, Group] = {}
    for kind, (number, rate_per_s) in plan.clients.items():
        tally = Tally()
        clients = [_client(kind, context, tally, one) for one in range(number)]
        groups[kind] = Group(clients, tally, rate_per_s)
    return await play(plan, groups, stop, show=show, mark=mark)


def _client(kind: Kind, context: Context, tally: Tally, number: int) -> Client:
    match kind:
        case Kind.STEADY | Kind.NEW_ON_ERROR:
            return SteadyProducer(context, tally, number, new_on_error=kind is Kind.NEW_ON_ERROR)
        case Kind.CRASH_LOOP:
            return CrashLoop(context, tally, number)
        case Kind.ID_PER_BATCH:
            return IdPerBatch(context, tally, number)
        case Kind.TRANSACTIONAL:
            return Transactional(context, tally, number)
        case Kind.CONNECT:
            return ConnectLoop(context, tally, number)
        case Kind.FETCH:
            return FetchLoop(context, tally, number)


async def play(
    plan: Plan,
    groups: Mapping[str, Group],
    stop: asyncio.Event,
    *,
    show: Show = show_nothing,
    mark: Callable[[], None] = lambda: None,
) -> Result:
    """Let the clients work until the plan's time is over or `stop` is set, then wait for their last answers.

    `mark` is called when the warm-up is over and after the last answer.
    """
    open_files.allow_most()
    tallies = {kind: group.tally for kind, group in groups.items()}
    everybody = [client for group in groups.values() for client in group.clients]
    endless = [client for group in groups.values() if group.rate_per_s is None for client in group.clients]
    loop = asyncio.get_running_loop()
    preparing = _prepare(everybody)
    await _unless_stopped(asyncio.wait(preparing, timeout=plan.prepare_s), stop)
    not_prepared = sum(not task.done() for task in preparing)
    gc.collect()
    gc.freeze()
    start_s = loop.time() + _LEAD_S
    from_s = start_s + plan.warmup_s
    until_s = from_s + plan.duration_s

    def begin_counting() -> None:
        for tally in tallies.values():
            tally.restart(from_s)
        mark()

    def hand_out(due: Due) -> None:
        after_s, kind, number = due
        clients = groups[kind].clients
        clients[number % len(clients)].queue_work(start_s + after_s)

    warmed_up = loop.call_at(from_s, begin_counting) if plan.warmup_s else None
    showing = asyncio.ensure_future(_show(show, tallies, start_s))
    try:
        if warmed_up is None:
            mark()
        for client in endless:
            client.work_endlessly(True)
        rates = {kind: group.rate_per_s for kind, group in groups.items() if group.rate_per_s is not None}
        own_delay = await pace(schedule(rates, until_s - start_s, plan.seed), start_s, hand_out, stop)
        if endless:
            await _unless_stopped(asyncio.sleep(until_s - loop.time()), stop)
        for client in endless:
            client.work_endlessly(False)
        await _wait_until_quiet(everybody, plan.drain_s)
    finally:
        end_s = loop.time()
        mark()
        showing.cancel()
        if warmed_up is not None:
            warmed_up.cancel()
        for task in preparing:
            end_task(task)
        for client in everybody:
            client.end_run(end_s)
        gc.unfreeze()
    return Result(plan, tallies, max(end_s - from_s, 0.0), own_delay, not_prepared, stop.is_set())


def _prepare(everybody: Sequence[Client]) -> list[asyncio.Task[None]]:
    room = asyncio.Semaphore(_PREPARED_AT_ONCE)

    async def prepare(client: Client) -> None:
        async with room:
            await client.prepare()

    return [asyncio.ensure_future(prepare(client)) for client in everybody]


async def _wait_until_quiet(everybody: Sequence[Client], within_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while not all(client.is_quiet for client in everybody):  # noqa: ASYNC110 - no event is worth it
                await asyncio.sleep(_POLL_S)


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
