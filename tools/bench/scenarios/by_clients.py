"""01, 02, 04 and 06 by clients as they come: librdkafka (confluent-kafka) and Java (Kafka's performance tools).

They choose requests, versions and connections themselves; what they are held to is the same. Records of the bulk loads
are ten times as large as the raw load's and as many times fewer in a batch, since the work that a client has with each
record is not what is measured. Java's tool is a JVM for each producer, so 01 has two of them, and 06 has none.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pidgate.load.plan import Address
from tools.bench.loads.client import fill
from tools.bench.scenario import Plan, Scenario
from tools.bench.scenarios.through_targets import (
    BULK_FETCH,
    BULK_PRODUCE,
    CONNECTIONS,
    FETCH_PARTITIONS,
    SMALL_REQUESTS,
    bulk,
    paced,
)
from tools.bench.targets import ORDINARY

_RECORD_BYTES: Final = 10_000
_JAVA_BATCHES: Final = 400
"""In each partition that Java reads: it reads once what the others read over and over."""
_JAVA_BATCH_RECORDS: Final = 10


def _by(client: str, scenario: Scenario, title: str, plan: Mapping[str, float], **changes: Any) -> Scenario:
    """Return the scenario with this client's load in place of the raw one."""
    return replace(
        scenario,
        name=f"{scenario.name}-{client}",
        title=f"{title} ({client})",
        **{"kind": f"{client}-{scenario.kind}", **changes},
        plan=plan,
        targets=ORDINARY,
        at_once=False,
        goals=tuple(goal for goal in scenario.goals if goal.of.startswith("CPU")),
    )


def _librdkafka(scenario: Scenario, plan: Plan) -> Scenario:
    # Its idempotent producers accept no other acks than those of all replicas, of which there is one.
    kind = "librdkafka-paced" if plan["rate_per_s"] else f"librdkafka-{scenario.kind}"
    return _by("librdkafka", scenario, scenario.title, {**plan, "acks": -1}, kind=kind)


def _java(
    scenario: Scenario, title: str, records_each: int, plan: Mapping[str, float], **changes: Any
) -> Scenario:
    usual = {"records_per_s": 0, "record_bytes": _RECORD_BYTES, "batch_bytes": 950_000, "linger_ms": 50}
    quick = {"records_each": min(records_each, 2_000)}
    return _by(
        "java",
        scenario,
        title,
        {"clients": 2, "records_each": records_each, **usual, **plan},
        quick=quick,
        **changes,
    )


def _prepare_for_java(address: Address, topic_id: bytes, plan: Plan) -> None:
    record_bytes = int(plan["record_bytes"])
    fill(address, topic_id, FETCH_PARTITIONS, _JAVA_BATCH_RECORDS, record_bytes, _JAVA_BATCHES)


SCENARIOS: Final = (
    _librdkafka(SMALL_REQUESTS, paced(8, 2000)),
    _java(
        SMALL_REQUESTS,
        "2 idempotent producers, 1 KB, 1,000 records/s each",
        10_000,
        {"records_per_s": 1_000, "record_bytes": 1024, "batch_bytes": 16_384, "linger_ms": 0},
        kind="java-produce",
        cost_per="record",
    ),
    _librdkafka(BULK_PRODUCE, {**bulk(1, records=95), "record_bytes": _RECORD_BYTES}),
    _java(BULK_PRODUCE, BULK_PRODUCE.title, 100_000, {}),
    _librdkafka(BULK_FETCH, {**bulk(FETCH_PARTITIONS // 2, records=10), "record_bytes": _RECORD_BYTES}),
    _java(
        BULK_FETCH,
        "2 consumers, a group each, as fast as they go",
        FETCH_PARTITIONS * _JAVA_BATCHES * _JAVA_BATCH_RECORDS,
        {},
        prepare=_prepare_for_java,
    ),
    _librdkafka(CONNECTIONS, paced(200, 2000)),
)
