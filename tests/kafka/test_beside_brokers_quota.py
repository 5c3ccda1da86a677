"""Byte rates for a minute, beside the broker's own quota of the same rate: bytes, full fetches, rebalances.

Each workload runs twice at the same time: behind a gateway with the rate, and behind one without, at a broker that has
it. `python -m pytest -s` prints both numbers of each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaConsumer

from tests.support.byte_quotas import (
    PRODUCE,
    FetchOf,
    alter_client_quota,
    batch_of,
    fetch_head,
    fill,
    produce,
    topic_id_of,
)
from tests.support.counting_relay import HOST, CountingRelay, Seen
from tests.support.raw import Closed, RawClient, request
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

RATE = 50_000
OVER_S = 60.0
WINDOW = 10 * RATE
MEMBERS = 3
BATCH_BYTES = 1_000_000
"""Larger than a window of the rate."""
REQUEST_BYTES = 10_000
CLIENTS = 4
"""That connect for each request, at the same time."""
PAUSE_S = 0.05
STARTS_S = 10.0
"""Until both gateways run, and everybody has connected."""
JOINED_S = 20.0
"""After so long a group has its members."""
WRONG_EPOCH = 71
LONG = "long-" + 295 * "x"
IDS = {"null": (None,), "empty": ("",), "300 bytes": (LONG,), "300 bytes, another": (LONG[:-1] + "y",)}


def most_bytes(largest: int, connections: int) -> float:
    """The bound: 1.1 x rate x time + ten seconds' worth + one request of each connection open at the start."""
    return 1.1 * RATE * OVER_S + 10 * RATE + connections * largest


@dataclass
class Load:
    """Clients with a connection for each request; `passed_bytes`: what was taken of them, or given to them."""

    address: str
    client_ids: tuple[str | None, ...]
    until_s: float
    passed_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, nbytes: int) -> None:
        if time.monotonic() < self.until_s:
            with self.lock:
                self.passed_bytes += nbytes

    def each(self, work: Callable[[RawClient, str | None], int]) -> list[threading.Thread]:
        """Threads that do this over a new connection, again and again."""

        def run(number: int) -> None:
            while time.monotonic() < self.until_s:
                client_id = self.client_ids[number % len(self.client_ids)]
                try:
                    with RawClient(self.address, timeout_s=90.0) as client:
                        self.add(work(client, client_id))
                except (OSError, Closed):
                    pass
                time.sleep(PAUSE_S)

        return [threading.Thread(target=run, args=(number,), daemon=True) for number in range(CLIENTS)]

    def producing(self, topic: str) -> list[threading.Thread]:
        def work(client: RawClient, client_id: str | None) -> int:
            framed = produce(9, topic, None, batch_of(REQUEST_BYTES), client_id or "")
            client.ask(framed)
            return len(framed) - 4

        return self.each(work)

    def fetching(self, fetch: FetchOf) -> list[threading.Thread]:
        def work(client: RawClient, client_id: str | None) -> int:
            frame = client.ask(replace(fetch, client_id=client_id).framed(12))
            assert fetch_head(frame, 12).error_code == 0
            return len(frame)

        return self.each(work)


def by_librdkafka(address: str, topic: str, client_id: str, ends: threading.Event) -> None:
    settings = {"bootstrap.servers": address, "group.id": client_id, "client.id": client_id}
    consumer: Any = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while not ends.is_set():
        consumer.poll(0.2)
    consumer.close()


def by_kafka_python(address: str, topic: str, client_id: str, ends: threading.Event) -> None:
    """It fetches within sessions, as Java does."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=client_id,
        client_id=client_id,
        auto_offset_reset="earliest",
    )
    while not ends.is_set():
        consumer.poll(timeout_ms=200)
    consumer.close(timeout_ms=1_000)


GROUPS = {"librdkafka": by_librdkafka, "kafka-python": by_kafka_python}


@pytest.fixture
def topics(cluster: Cluster, topic_name: Callable[[str], str]) -> tuple[str, str, str]:
    """One to write to, one of small batches, one of large ones with a partition for each member."""
    broker = cluster.bootstrap_servers()
    config = {"max.message.bytes": str(2 * BATCH_BYTES)}
    made = [
        create_topic(broker, topic_name(stem), partitions=MEMBERS if stem == "large" else 1, config=config)
        for stem in ("written", "small", "large")
    ]
    fill(broker, made[1], 2 * WINDOW, batch_bytes=REQUEST_BYTES)
    with RawClient(broker) as client:
        for partition in range(MEMBERS):
            data = {"index": partition, "records": batch_of(BATCH_BYTES)}
            body = {
                "acks": -1,
                "timeout_ms": 10_000,
                "topic_data": [{"name": made[2], "partition_data": [data]}],
            }
            for _ in range(12):
                client.ask(request(PRODUCE, 9, body))
    return made[0], made[1], made[2]


@pytest.mark.timeout(240)
def test_a_minute_beside_the_brokers_own_quota(cluster: Cluster, topics: tuple[str, str, str]) -> None:
    broker = cluster.bootstrap_servers()
    written, small, large = topics
    names = ["produce", "fetch", *GROUPS]
    alter_client_quota(
        broker, {f"{name}-broker": {"producer_byte_rate": RATE, "consumer_byte_rate": RATE} for name in names}
    )
    rates = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
    enforced = {"mode": "enforce", "users": {"ANONYMOUS": {"clients": {"<default>": rates}}}}
    ends, until_s = threading.Event(), time.monotonic() + STARTS_S + OVER_S
    threads: list[threading.Thread] = []
    passed: dict[str, dict[str, Load | Seen]] = {}
    fetch = FetchOf(topic=small, topic_id=topic_id_of(broker, small), client_id="")
    with ExitStack() as stack:
        for side, quotas in (("broker", {"mode": "observe"}), ("gateway", enforced)):
            gateway = stack.enter_context(GatewayProcess(broker, quotas=quotas, listener={"advertise": HOST}))
            relay = stack.enter_context(CountingRelay(gateway.port, gateway.first_node_port + 1))
            address = f"{HOST}:{gateway.port}"
            of = passed[side] = {}
            for name, consume in GROUPS.items():
                client_id = f"{name}-{side}"
                of[name] = relay.seen[client_id]
                threads += [
                    threading.Thread(target=consume, args=(address, large, client_id, ends), daemon=True)
                    for _ in range(MEMBERS)
                ]
            ids = {name: (f"{name}-{side}",) for name in ("produce", "fetch")}
            for name, client_ids in (ids | IDS if side == "gateway" else ids).items():
                load = of[name] = Load(address, client_ids, until_s)
                threads += load.producing(written) if name == "produce" else load.fetching(fetch)
        began_s = time.monotonic()
        for thread in threads:
            thread.start()
        time.sleep(max(0.0, until_s - time.monotonic()))
        try:
            here, theirs = passed["gateway"], passed["broker"]
            for name, one in here.items():
                beside = f"{_rate(theirs[name])} behind the broker's quota" if name in theirs else ""
                print(f"{name}: {_rate(one)} kB/s, {beside}")
            for name in GROUPS:
                ours, brokers = here[name], theirs[name]
                assert isinstance(ours, Seen)
                assert isinstance(brokers, Seen)
                print(f"{name}: {ours.full} full fetches, {brokers.full} behind the broker's quota")
                assert ours.full <= brokers.full
                assert set(ours.errors) <= {WRONG_EPOCH}
                assert [at_s - began_s for at_s in ours.joined_s if at_s - began_s > JOINED_S] == []
                assert ours.passed_bytes <= most_bytes(BATCH_BYTES, MEMBERS)
            nobody = here["null"].passed_bytes + here["empty"].passed_bytes
            assert nobody <= most_bytes(WINDOW, 2 * CLIENTS), "they share the account of the empty id"
            for name in ("fetch", "300 bytes", "300 bytes, another"):
                assert RATE * OVER_S / 2 < here[name].passed_bytes <= most_bytes(WINDOW, CLIENTS)
            assert RATE * OVER_S / 2 < here["produce"].passed_bytes <= most_bytes(REQUEST_BYTES, CLIENTS)
        finally:
            ends.set()
            for thread in threads:
                thread.join(60)


def _rate(of: Load | Seen) -> int:
    """Return kB/s."""
    return round(of.passed_bytes / OVER_S / 1_000)
