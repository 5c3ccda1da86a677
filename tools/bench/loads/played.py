"""Loads that the library of `pidgate load` plays, past Metadata, into topics named by id."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from pidgate.load.journal import Outcome, ProducerJournal
from pidgate.load.pacing import new_event_loop
from pidgate.load.plan import Clients, Kind, Plan
from pidgate.load.report import total_of
from pidgate.load.running import Result, run
from pidgate.protocol.errors import ErrorCode
from tools.bench.loads.client import CLIENT_ID, LoadError, Through, latency_summary
from tools.bench.process_cost import ProcessCost, cost_of_watched

# Far above the ids that a broker assigns.
_FIRST_ID: Final = 1 << 50
_LAST_ANSWERS_S: Final = 30.0
_PREPARE_S: Final = 120.0
_STORM_LOOPS_PER_S: Final = 2
"""Loops for each connection a second: a refused one waits for its throttle time, at most a second in all."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Number of clients, rate of all of them, and their batches."""

    clients: int
    rate_per_s: float
    """0: as fast as the answers come."""
    partitions_each: int
    records: int
    record_bytes: int
    acks: int
    warmup_s: float
    measure_s: float
    partitions: int = 0
    """Of the topic, which clients share; 0: each client has its own."""


@dataclass(frozen=True, slots=True)
class StormPlan:
    """Connections until SIGTERM, each with a new id that is refused and comes back."""

    connections_per_s: float
    tries: int
    partitions: int
    record_bytes: int
    first: int
    """Number of the first id."""


Mark = Callable[[], None]


def measured_run(
    through: Through, play: Callable[[Mark], Coroutine[Any, Any, Result]]
) -> tuple[Result, dict[str, float]]:
    """Run a load in an event loop of its own; return its result, and the cost of the process between.

    Raises LoadError, OSError unless everything was acknowledged at the first try and without a throttle.
    """
    costs: list[ProcessCost] = []
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        result = runner.run(play(lambda: costs.append(cost_of_watched(through.watch))))
    total = total_of(result.tallies)
    troubles = {
        "clients without a producer id": result.not_prepared,
        "answers with an error": dict(total.refused),
        "lost connections": total.connection_errors,
        "batches given up": total.lost,
        "batches unanswered": total.unfinished,
        "seconds of throttles": total.throttle_s,
    }
    found = {name: value for name, value in troubles.items() if value}
    if found:
        raise LoadError(", ".join(f"{name}: {value}" for name, value in found.items()))
    spent = costs[-1] - costs[0]
    return result, {
        "requests": total.acknowledged,
        "bytes": total.bytes,
        "seconds": result.seconds,
        **latency_summary(total.latency),
        "late_p99_ms": total.sent_late.percentile_ms(99.0) or 0.0,
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }


def _measured(kind: Kind, through: Through, plan: LoadPlan) -> dict[str, float]:
    whole = Plan(
        bootstrap=(through.address,),
        topic_id=through.topic_id,
        clients={kind: Clients(plan.clients, plan.rate_per_s or None)},
        duration_s=plan.measure_s,
        warmup_s=plan.warmup_s,
        record_bytes=plan.record_bytes,
        records_per_batch=plan.records,
        partitions_each=plan.partitions_each,
        acks=plan.acks,
        client_id=CLIENT_ID,
        login=through.login,
        is_direct=True,
        partitions=plan.partitions or plan.clients * plan.partitions_each,
        prepare_s=_PREPARE_S,
        drain_s=_LAST_ANSWERS_S,
    )
    _, measured = measured_run(through, lambda mark: run(whole, asyncio.Event(), mark=mark))
    measured["bytes"] *= 1 if kind is Kind.FETCH else plan.partitions_each
    return measured


def run_produce(through: Through, plan: LoadPlan) -> dict[str, float]:
    """Idempotent producers."""
    return _measured(Kind.STEADY, through, plan)


def run_fetch(through: Through, plan: LoadPlan) -> dict[str, float]:
    """Consumers without a group that read their partitions again and again."""
    return _measured(Kind.FETCH, through, plan)


def run_connect(through: Through, plan: LoadPlan) -> dict[str, float]:
    """Connections that are made, ask for ApiVersions and are closed."""
    measured = _measured(Kind.CONNECT, through, plan)
    return {**measured, "connections": measured.pop("requests")}


def run_storm(through: Through, plan: StormPlan) -> dict[str, Any]:
    """A user far above the quota: new connections at a rate, each with its own id, until SIGTERM.

    Each connection logs in, if there is a login, and sends the first batch of an id that no broker has assigned. When
    it is refused it waits for the throttle time and sends the same batch again, `tries` times in all. So
    `connections_per_s` x `tries` refusals come per second. The result names the ids that were admitted.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(storm(through, plan))


async def storm(through: Through, plan: StormPlan) -> dict[str, Any]:
    """See `run_storm`."""
    stop, journal = asyncio.Event(), ProducerJournal("storm")
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    loops = max(1, round(plan.connections_per_s * _STORM_LOOPS_PER_S))
    whole = Plan(
        bootstrap=(through.address,),
        topic_id=through.topic_id,
        clients={Kind.ID_PER_BATCH: Clients(loops, plan.connections_per_s)},
        duration_s=3_600.0,
        record_bytes=plan.record_bytes,
        acks=1,
        client_id=CLIENT_ID,
        login=through.login,
        is_direct=True,
        partitions=plan.partitions,
        first_id=_FIRST_ID + plan.first,
        most_tries=plan.tries,
        drain_s=_LAST_ANSWERS_S,
    )
    result = await run(whole, stop, journal=journal)
    total = total_of(result.tallies)
    refusals = total.refused.pop(ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    admitted = [n for (_, n), entry in journal.entries.items() if entry.outcome is Outcome.ACKNOWLEDGED]
    failed = total.connection_errors + total.refused.total() + total.unfinished
    why = f"error codes {dict(total.refused)}, {total.connection_errors} lost, {total.unfinished} unfinished"
    return {
        "seconds": result.seconds,
        "opened": total.connections,
        "refusals": refusals,
        "failed": failed,
        "why": why if failed else "",
        "admitted": admitted,
    }
