"""Metadata with 1,000 topics x 10 partitions: does the event loop stand still while such answers pass?

Each run has a calm half and one in which ten of them a second pass, a third of a megabyte each, most of them different
from the one before. What counts is the gateway's own histogram of its event loop's lateness; the latency of tiny
requests beside them shows the same from outside, with what broker and load do to each other on their core. What it was
late because others had its core stands in a column of its own; on a quiet machine next to nothing.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from pidgate.load.blocking import BlockingConnection
from pidgate.load.plan import Address
from tools.bench.alone import (
    Alone,
    Column,
    Conditions,
    Plan,
    Results,
    broker_beside,
    broker_spec,
    compiled_gateway,
    give_core,
)
from tools.bench.goals import Goal
from tools.bench.loads.client import Through, connect, create_topics, metadata_of
from tools.bench.loads.metadata import topic_name
from tools.bench.loads.process import measured_by, started
from tools.bench.quantities import Measured, measured_as
from tools.bench.scenarios import lateness
from tools.bench.targets import TargetFailed
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import NEWEST

_TOPICS_AT_ONCE: Final = 50
_PATIENCE_S: Final = 120.0
# An index file takes its greatest size at once: 20,000 of them would not fit into memory.
_SMALL_INDEXES: Final = {"log.index.size.max.bytes": "4096", "log.cleaner.enable": "false"}


def _measure(plan: Plan, conditions: Conditions) -> Results:
    results: Results = {"calm": [], "metadata": []}
    with broker_beside(conditions.placement, broker_spec(_SMALL_INDEXES)) as cluster:
        _create_topics(cluster.nodes[1], int(plan["topics"]), int(plan["partitions"]))
        with compiled_gateway(cluster.bootstrap_servers()) as gateway:
            give_core(gateway, conditions.placement)
            time.sleep(plan["settle_s"])
            for run in range(1, conditions.runs + 1):
                for phase, per_s in (("calm", 0.0), ("metadata", plan["metadata_per_s"])):
                    measured = _phase({**plan, "metadata_per_s": per_s}, gateway, conditions)
                    results[phase].append(measured)
                    conditions.say(
                        f"11 run {run}/{conditions.runs} {phase:8} late above 5 ms {measured['late_5ms']:.0f} of "
                        f"{measured['ticks']:.0f}, loop p99 {measured['loop_p99_ms']:.2f} max "
                        f"{measured['loop_max_ms']:.2f} ms, {measured['answers']:.0f} answers"
                    )
    return results


def _phase(plan: Mapping[str, float], gateway: GatewayProcess, conditions: Conditions) -> Measured:
    fields = {key: plan[key] for key in ("topics", "partitions", "metadata_per_s", "tiny_per_s", "seconds")}
    through = Through(("127.0.0.1", gateway.first_node_port + 1))
    before = lateness.now(gateway)
    with started(
        "metadata", through, fields | {"admin_port": gateway.admin_port}, conditions.placement
    ) as load:
        measured: Measured = measured_by(load)
    return {**measured, **lateness.since(before, lateness.now(gateway))}


def _create_topics(address: Address, topics: int, partitions: int) -> None:
    names = [topic_name(number) for number in range(topics)]
    with connect(address, timeout_s=_PATIENCE_S) as connection:
        for first in range(0, topics, _TOPICS_AT_ONCE):
            create_topics(connection, names[first : first + _TOPICS_AT_ONCE], partitions)
        give_up_s = time.monotonic() + _PATIENCE_S
        while _leading(connection, names) < topics * partitions:
            if time.monotonic() > give_up_s:
                raise TargetFailed("not all partitions have a leader")
            time.sleep(0.5)


def _leading(connection: BlockingConnection, names: Sequence[str]) -> int:
    """Return how many partitions have a leader."""
    return sum(
        partition.error_code == 0
        for first in range(0, len(names), _TOPICS_AT_ONCE)
        for topic in metadata_of(connection, names[first : first + _TOPICS_AT_ONCE])
        for partition in topic.partitions
    )


SCENARIO = Alone(
    number="11",
    name="metadata",
    title="Metadata with 1,000 topics x 10 partitions",
    kafka=NEWEST,
    plan={
        "topics": 1_000,
        "partitions": 10,
        "metadata_per_s": 10,
        "tiny_per_s": 200,
        "seconds": 20,
        "settle_s": 15,
    },
    quick={"topics": 200, "seconds": 4, "settle_s": 1},
    measure=_measure,
    columns=(
        Column("lateness measured", measured_as("ticks"), 0),
        Column("above 5 ms", measured_as("late_5ms"), 0),
        Column("mean lateness ms", measured_as("late_ms"), 2),
        Column("without a core ms", measured_as("late_without_core_ms"), 2),
        Column("waited for its core ms", measured_as("waited_for_core_ms"), 1),
        Column("/livez p99 ms", measured_as("loop_p99_ms"), 2),
        Column("max ms", measured_as("loop_max_ms"), 2),
        Column("ApiVersions p99 ms", measured_as("kafka_p99_ms"), 2),
        Column("Metadata p50 ms", measured_as("metadata_p50_ms"), 1),
        Column("KB each", lambda measured: measured["answer_bytes"] / 1e3, 0),
    ),
    goals=(
        Goal(
            "event loop more than 5 ms late",
            measured_as("late_5ms"),
            "exactly",
            0,
            "times",
            target="metadata",
        ),
    ),
)
