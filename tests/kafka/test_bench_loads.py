"""The loads of the bench that need a broker to speak to, in small and past any proxy: they send what they promise."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tools.bench.loads.client import Through, create_topic, fill
from tools.bench.loads.process import KINDS
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]
PARTITIONS = 4
TIMES = {"warmup_s": 0.5, "measure_s": 1.0}
PACED = {
    "clients": 2,
    "rate_per_s": 100,
    "partitions_each": 2,
    "records": 1,
    "record_bytes": 1024,
    "acks": -1,
    **TIMES,
}
BULK = {**PACED, "rate_per_s": 0, "records": 10, "record_bytes": 10_000}
MIXED = {
    "clients": 2,
    "rate_per_s": 100,
    "topics": 2,
    "partitions_each": 2,
    "largest_batch_bytes": 16_384,
    "different_requests": 10,
    "acks": 1,
    **TIMES,
}
JAVA = {
    "clients": 2,
    "records_each": 400,
    "records_per_s": 0,
    "record_bytes": 10_000,
    "batch_bytes": 100_000,
    "linger_ms": 5,
}


def run(
    kind: str, plan: Mapping[str, Any], cluster: Cluster, name: str, further: int = 0
) -> dict[str, float]:
    address = cluster.nodes[1]
    names = [name, *(f"{name}-{number}" for number in range(further))]
    topic_id, *others = (create_topic(address, one, PARTITIONS, {}) for one in names)
    if kind.endswith("fetch"):
        fill(address, topic_id, PARTITIONS, 10, 10_000, batches=20)
    way = Through(address, topic_id, topic=name, further_topic_ids=tuple(others))
    assert Through.of_json(way.as_json()) == way
    make, load = KINDS[kind]
    measured = load(way, make(**plan))
    assert measured["seconds"] > 0
    return dict(measured)


@pytest.mark.parametrize("kind", ["produce", "librdkafka-paced"])
def test_a_rate_is_kept(kind: str, cluster: Cluster, topic_name: TopicName) -> None:
    measured = run(kind, {**PACED, "measure_s": 3.0}, cluster, topic_name(kind))
    # Exactly so many over the whole run; a machine that stands still shifts some into the second that counts.
    assert measured["requests"] == pytest.approx(300, rel=0.4)
    assert measured["bytes"] == measured["requests"] * (2 * 1024 if kind == "produce" else 1024)
    assert 0 < measured["p50_ms"] <= measured["p90_ms"] <= measured["p99_ms"]


def test_mixed_requests_are_taken(cluster: Cluster, topic_name: TopicName) -> None:
    measured = run("mixed", MIXED, cluster, topic_name("mixed"), further=1)
    assert measured["requests"] == 100
    assert measured["bytes"] > 100 * 100


def test_connections_are_made_at_a_rate(cluster: Cluster, topic_name: TopicName) -> None:
    measured = run("connect", PACED, cluster, topic_name("connect"))
    assert measured["connections"] == 100
    assert measured["p99_ms"] > 0


def test_a_broker_takes_the_half_of_a_frame(cluster: Cluster, topic_name: TopicName) -> None:
    plan = {"connections": 2, "batch_bytes": 10_000_000, "sent_bytes": 5_000_000, "acks": 1}
    measured = run("unfinished", plan, cluster, topic_name("unfinished"))
    assert measured["taken_bytes"] == 2 * 5_000_000


@pytest.mark.parametrize("kind", ["produce", "fetch", "librdkafka-produce", "librdkafka-fetch"])
def test_bulk_loads_go_as_fast_as_they_can(kind: str, cluster: Cluster, topic_name: TopicName) -> None:
    measured = run(kind, {**BULK, "measure_s": 3.0}, cluster, topic_name(kind))
    # What is read over and over is more than the topic holds.
    assert measured["bytes"] > PARTITIONS * 20 * 10 * 10_000


@pytest.mark.parametrize("kind", ["java-produce", "java-fetch"])
def test_java_sends_and_reads_as_many_as_it_is_to(kind: str, cluster: Cluster, topic_name: TopicName) -> None:
    measured = run(kind, JAVA, cluster, topic_name(kind))
    assert 800 <= measured["requests"] <= 1_600
    assert measured["bytes"] >= 800 * 10_000
