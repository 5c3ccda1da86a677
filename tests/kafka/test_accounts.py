"""One user's waits on a real broker: a refused id, and a byte debt, beside a healthy producer and consumer group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer

from pidgate.protocol.messages import INIT_PRODUCER_ID
from tests.support.byte_quotas import METADATA, batch_of, produce, produce_of_size, produce_throttle
from tests.support.raw import RawClient, decoded
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

BYTE_RATE = 20_000
DEBT_S = 2.5
IN_DEBT = round(BYTE_RATE * (10 + DEBT_S))
"""Bytes of one request: a window, and what makes the debt."""
THROTTLE_S = 2.0
"""Of a refused id."""
SOON_S = 0.8
REFUSED = 19
QUOTAS: dict[str, Any] = {
    "mode": "enforce",
    "producer_ids": {"max_throttle": f"{THROTTLE_S:g}s"},
    "users": {"ANONYMOUS": {"producer_ids_rate": 2, "producer_byte_rate": BYTE_RATE}},
}


class Group:
    """A member of a consumer group, with many heartbeats: what it got, and how often it was assigned partitions."""

    def __init__(self, address: str, topic: str) -> None:
        self.values: list[bytes] = []
        self.assigned = 0
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 6_000,
                "auto.commit.interval.ms": 200,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _on_assign(self, *_: object) -> None:
        self.assigned += 1

    def _run(self) -> None:
        while not self._ends.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(message.value())
        self._consumer.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join(10)


class Producer:
    """A producer id on a connection of its own."""

    def __init__(self, client: RawClient, broker: str, topic: str) -> None:
        self.client = client
        with RawClient(broker) as direct:
            asked = {"transactional_id": None, "transaction_timeout_ms": 1_000}
            while (answer := direct.call(INIT_PRODUCER_ID, 1, asked))["error_code"]:
                time.sleep(0.05)
        self._id, self._topic, self._sequence = answer["producer_id"], topic, 0

    def send(self) -> tuple[int, float]:
        """Send the next batch; return its error code, and how long the answer took."""
        framed = produce(
            9,
            self._topic,
            None,
            batch_of(200, producer_id=self._id, base_sequence=self._sequence),
            "healthy",
        )
        began_s = time.monotonic()
        answer = decoded(0, 9, self.client.ask(framed))
        code = int(answer["responses"][0]["partition_responses"][0]["error_code"])
        self._sequence += code == 0
        return code, time.monotonic() - began_s


def took_s(ask: Callable[[], object]) -> float:
    began_s = time.monotonic()
    ask()
    return time.monotonic() - began_s


def test_a_refused_id_and_a_byte_debt_beside_a_healthy_producer_and_group(
    cluster: Cluster, topic_name: Callable[[str], str]
) -> None:
    broker = cluster.bootstrap_servers()
    topic, bulk = create_topic(broker, topic_name("healthy")), create_topic(broker, topic_name("bulk"))
    with GatewayProcess(broker, quotas=QUOTAS) as gateway, ExitStack() as stack:

        def producer() -> Producer:
            client = stack.enter_context(RawClient(gateway.bootstrap_servers))
            return Producer(client, broker, topic)

        healthy, rogue = producer(), producer()
        group = Group(gateway.bootstrap_servers, topic)
        with group.reading(), RawClient(gateway.bootstrap_servers) as other:
            code, _ = healthy.send()
            while code:
                time.sleep(0.05)  # the broker has not heard yet that it leads the topic
                code, _ = healthy.send()

            # The refused id waits, and what is behind it on its connection. Nobody else does.
            assert REFUSED in [producer().send()[0] for _ in range(3)]
            refused = rogue.send()
            assert refused[0] == REFUSED
            began_s = time.monotonic()
            waits = threading.Thread(target=rogue.client.call, args=(METADATA, 12, {"topics": []}))
            waits.start()
            assert [healthy.send()[0] for _ in range(5)] == [0] * 5
            assert time.monotonic() - began_s < SOON_S
            assert waits.is_alive(), "the control: the rogue's connection is muted"

            while not group.assigned:
                time.sleep(0.05)

            # A debt: every Produce waits for it, on any connection. Groups, offsets and metadata do not.
            with RawClient(gateway.bootstrap_servers) as exceeds:
                framed = produce_of_size(IN_DEBT, 9, bulk, UUID(int=0), "bulk")
                told_ms = produce_throttle(exceeds.ask(framed), 9)
                assert told_ms is not None
                assert told_ms > (DEBT_S - SOON_S) * 1_000, "the control: there is a debt"
                sent: list[tuple[int, float]] = []
                sends = threading.Thread(target=lambda: sent.append(healthy.send()))
                sends.start()
                asked = [
                    took_s(lambda: other.call(METADATA, 12, {"topics": [{"name": topic}]})) for _ in range(10)
                ]
                offsets = {"group_id": topic, "topics": [{"name": topic, "partition_indexes": [0]}]}
                asked += [took_s(lambda: other.call(9, 5, offsets)) for _ in range(10)]
                assert sum(asked) < SOON_S
                assert not sent, "the Produce waits"
                sends.join(10)
                assert sent[0][0] == 0
                assert DEBT_S - SOON_S < sent[0][1] < DEBT_S + 2 * SOON_S
            assert healthy.send()[0] == 0
            waits.join(10)
            until_s = time.monotonic() + 5
            while len(group.values) < 8 and time.monotonic() < until_s:
                time.sleep(0.05)
        assert group.assigned == 1, "the group has not rebalanced"
        assert len(group.values) >= 8
