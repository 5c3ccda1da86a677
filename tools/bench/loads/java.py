"""The same loads by Java's clients, through Kafka's own performance tools: a JVM for each client.

A tool sends or reads a number of records and ends. The cost is that of the whole run, after a first, small run that
is not counted. The start of a JVM costs the proxy nothing.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeVar

from tools.bench.loads.client import LoadError, Through
from tools.bench.process_cost import ProcessCost, cost_of_watched
from tools.sandbox.errors import SandboxError
from tools.sandbox.performance import Consumed, Produced, consume_performance, produce_performance
from tools.sandbox.tools import JavaTools

_RUN_WITHIN_S: Final = 600.0
_HEAP_MB: Final = 512
_FIRST_RUN: Final = 20
"""The first run has this part of the records."""

T = TypeVar("T", Produced, Consumed)


@dataclass(frozen=True, slots=True)
class JavaPlan:
    """Number of clients, records of each, and rate (0: as fast as it goes); the most bytes of a batch."""

    clients: int
    records_each: int
    records_per_s: float
    record_bytes: int
    batch_bytes: int
    linger_ms: int


def _tools() -> JavaTools:
    return JavaTools(heap_mb=_HEAP_MB, jvm_options=("-XX:+UseSerialGC",))


def _run(
    clients: int, one: Callable[[int], T], plan: JavaPlan, watch: int | None
) -> tuple[Sequence[T], ProcessCost]:
    """Let one client have a first run, then all of them run; `one` takes a number of records."""
    try:
        one(max(1, plan.records_each // _FIRST_RUN))
        before = cost_of_watched(watch)
        with ThreadPoolExecutor(clients) as threads:
            done = list(threads.map(one, [plan.records_each] * clients))
    except SandboxError as error:
        raise LoadError(str(error)) from error
    return done, cost_of_watched(watch) - before


def _measured(done: Sequence[T], payload_bytes: float, spent: ProcessCost) -> dict[str, float]:
    return {
        "requests": sum(one.records for one in done),
        "bytes": payload_bytes,
        "seconds": max(one.seconds for one in done),
        "cpu_s": spent.cpu_ns / 1e9,
        "wakeups": spent.wakeups,
    }


def run_java_produce(through: Through, plan: JavaPlan) -> dict[str, float]:
    """ProducerPerformance; `requests` are records. The slowest client's p99."""
    tools, servers = _tools(), "{}:{}".format(*through.address)
    properties = {
        "acks": "all",
        "linger.ms": str(plan.linger_ms),
        "batch.size": str(plan.batch_bytes),
    }

    def one(records: int) -> Produced:
        return produce_performance(
            tools,
            servers,
            through.topic,
            records,
            size_bytes=plan.record_bytes,
            records_per_s=plan.records_per_s or -1,
            properties=properties,
            timeout_s=_RUN_WITHIN_S,
        )

    done, spent = _run(plan.clients, one, plan, through.watch)
    payload_bytes = plan.clients * plan.records_each * plan.record_bytes
    latencies = {"p50_ms": median(each.p50_ms for each in done), "p99_ms": max(each.p99_ms for each in done)}
    return {**_measured(done, payload_bytes, spent), **latencies}


def run_java_fetch(through: Through, plan: JavaPlan) -> dict[str, float]:
    """ConsumerPerformance, each client in a group of its own; the topic holds as many records."""
    tools, servers = _tools(), "{}:{}".format(*through.address)

    def one(records: int) -> Consumed:
        return consume_performance(tools, servers, through.topic, records, timeout_s=_RUN_WITHIN_S)

    done, spent = _run(plan.clients, one, plan, through.watch)
    return _measured(done, sum(each.mebibytes for each in done) * 2**20, spent)
