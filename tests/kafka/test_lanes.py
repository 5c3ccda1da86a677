"""Connections that need no decision, carried by lanes before a real broker: nothing is lost, all of it is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from pidgate.version import has_lanes
from tools.sandbox.certificates import Authority
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.skipif(not has_lanes(), reason="the extension is not built")]

RECORDS = 500
VALUE_BYTES = 2_000
QUOTAS: dict[str, Any] = {
    "mode": "enforce",
    "default": {"producer_ids_rate": 1_000_000},
    "producer_ids": {"grace": "0s"},
}


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> dict[str, str] | None:
    """Return `listeners.tls`, or None for a plain listener. With TLS, the lane without a thread decides."""
    if request.param == "plain":
        return None
    pair = authority.issue("gateway")
    return {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}


@pytest.fixture
def gateway(cluster: Cluster, tls: dict[str, str] | None) -> Iterator[GatewayProcess]:
    listener = None if tls is None else {"tls": tls}
    with GatewayProcess(
        cluster.bootstrap_servers(), quotas=QUOTAS, listener=listener, settings={"lanes": 1}
    ) as started:
        yield started
        assert started.stop() == 0


def test_a_producer_and_a_consumer(
    cluster: Cluster,
    gateway: GatewayProcess,
    tls: dict[str, str] | None,
    authority: Authority,
    topic_name: Callable[[str], str],
) -> None:
    topic = topic_name("lanes")
    client = {"bootstrap.servers": gateway.bootstrap_servers}
    if tls is not None:
        client |= {"security.protocol": "SSL", "ssl.ca.location": str(authority.ca_file)}
    create_topic(cluster.bootstrap_servers(), topic, partitions=3)
    producer = Producer({**client, "linger.ms": 0, "enable.idempotence": True})
    consumer = Consumer({**client, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received: set[int] = set()
    for number in range(RECORDS):
        producer.produce(topic, value=str(number).encode() + bytes(1_000))
        assert producer.flush(30) == 0, "each in a request of its own"
    until_s = time.monotonic() + 30
    while len(received) < RECORDS and time.monotonic() < until_s:
        message = consumer.poll(1)
        if message is not None and not message.error():
            received.add(int((message.value() or b"").rstrip(b"\0")))
    sent_bytes = {"from_client": RECORDS * 1_000, "to_client": RECORDS * 1_000}
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:  # a lane's bytes are counted once a second
        metrics = gateway.metrics()
        counted = {way: metrics.value("pidgate_user_bytes_total", direction=way) for way in sent_bytes}
        if all(counted[way] > least for way, least in sent_bytes.items()):
            break
        time.sleep(0.1)
    consumer.close()
    for way, least in sent_bytes.items():
        assert least < counted[way] < least + RECORDS * 500
    assert received == set(range(RECORDS))
    assert metrics.value("pidgate_lanes") == 1
    assert metrics.value("pidgate_lane_connections") >= 1
    assert metrics.value("pidgate_lane_requests_total") > 100


def test_bytes_that_lanes_carry_count_against_a_rate(
    cluster: Cluster, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("leased")
    create_topic(cluster.bootstrap_servers(), topic)
    rate = {"default": {**QUOTAS["default"], "producer_byte_rate": "200MB"}}
    with GatewayProcess(
        cluster.bootstrap_servers(), quotas={**QUOTAS, **rate}, settings={"lanes": 1}
    ) as gateway:
        producer = Producer(
            {"bootstrap.servers": gateway.bootstrap_servers, "linger.ms": 0, "enable.idempotence": True}
        )
        for _ in range(RECORDS):
            producer.produce(topic, value=bytes(VALUE_BYTES))
            assert producer.flush(30) == 0
        metrics = gateway.metrics()
    assert metrics.value("pidgate_lane_requests_total") > RECORDS / 2
    counted = metrics.value("pidgate_byte_counted_total", kind="produce", user="ANONYMOUS")
    assert RECORDS * VALUE_BYTES < counted < RECORDS * (VALUE_BYTES + 300)
