"""Large Produce requests that are passed on as they come, before a real broker: whole, cut off, and begun again."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from random import Random
from typing import Final

import pytest

from pidgate.load.blocking import BlockingConnection
from pidgate.load.connection import ConnectionLost
from pidgate.load.exchanges import hello, init_producer_id
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.producer_requests import produce_answer, produce_request
from pidgate.protocol.record_batch import RecordBatch
from tests.hostile.cost import memory_bytes
from tests.support.raw import address_of
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

MB: Final = 1_000_000
SIZES: Final = (1_400_000, 1_400_000, 2 * MB, 2 * MB, 5 * MB, 12 * MB)
SMALL: Final = 10
TIMESTAMP_MS: Final = 1_780_000_000_000
LARGEST: Final = {"max.message.bytes": str(90 * MB)}
CLIENT_ID: Final = "large"
TAIL_BYTES: Final = 3
"""Of a frame, behind its one batch."""
QUOTAS: Final = {
    "mode": "enforce",
    "default": {"producer_ids_rate": 1_000_000},
    "producer_ids": {"grace": "0s"},
}


@cache
def batch_of(value_bytes: int) -> RecordBatch:
    """One record of so many bytes."""
    return RecordBatch([os.urandom(value_bytes)])


@contextmanager
def gateway_before(cluster: Cluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(cluster.bootstrap_servers(), quotas=QUOTAS) as gateway:
        yield gateway
        assert gateway.stop() == 0


class Producer:
    """One producer id that writes to a partition of its own, and begins again where its connection ends."""

    def __init__(self, gateway: GatewayProcess, topic: str, partition: int, random: Random) -> None:
        self._address = address_of(gateway.bootstrap_servers)
        self._topic, self._partition, self._random = topic, partition, random
        self.connection = self._connected()
        self.producer_id = self.connection.run(init_producer_id()).producer_id
        self.sent: list[int] = []
        """Bytes of each record that was acknowledged."""

    def _connected(self) -> BlockingConnection:
        connection = BlockingConnection(self._address, client_id=CLIENT_ID, timeout_s=30)
        connection.run(hello())
        return connection

    def close(self) -> None:
        self.connection.close()

    def frame(self, value_bytes: int) -> bytes:
        """Return the request with the next batch."""
        sequence = len(self.sent)
        batch = batch_of(value_bytes).stamped(self.producer_id, 0, sequence, TIMESTAMP_MS)
        return produce_request(sequence, CLIENT_ID, self._topic, [(self._partition, batch)])

    def send(self, value_bytes: int) -> None:
        """Send a batch, in pieces, until it is acknowledged; often something ends in the middle of it."""
        random = self._random
        while value_bytes > SMALL and random.random() < 0.5:
            self._break_off(value_bytes)
        frame, at = self.frame(value_bytes), 0
        while at < len(frame):
            size = random.choice((1_000, 100_000, MB, len(frame)))
            self.connection.send(frame[at : at + size])
            at += size
        self.acknowledged(value_bytes, frame)

    def acknowledged(self, value_bytes: int, frame: bytes) -> None:
        """Take the answer to a batch that was sent; one that is refused is sent again."""
        while (answer := produce_answer(self.connection.frame())).error_code == ErrorCode.NOT_ENOUGH_REPLICAS:
            time.sleep(answer.throttle_time_ms / 1_000)
            self.connection.send(frame)
        assert answer.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER), answer
        self.sent.append(value_bytes)

    def _break_off(self, value_bytes: int) -> None:
        """Send a part of it, and end the connection in one of three ways."""
        random, raw = self._random, self.connection.socket
        if random.random() < 0.7:  # known on this connection: the next one repeats it
            small = self.frame(SMALL)
            self.connection.send(small)
            self.acknowledged(SMALL, small)
        frame = self.frame(value_bytes)
        anywhere = random.randrange(150, len(frame))
        part = frame[
            : random.choice(
                (random.randrange(1, 150), anywhere, anywhere, len(frame) - TAIL_BYTES, len(frame) - 1)
            )
        ]
        with suppress(OSError):
            self.connection.send(part)
            how = random.choice(("closed", "reset", "half-closed"))
            if how == "reset":
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "half-closed":
                raw.shutdown(socket.SHUT_WR)
                with pytest.raises(ConnectionLost):
                    self.connection.frame()
        self.connection.close()
        self.connection = self._connected()


def play(cluster: Cluster, topic: str, schedules: int, sizes: Sequence[int] = SIZES) -> None:
    create_topic(cluster.bootstrap_servers(), topic, schedules, config=LARGEST)
    expected = []
    with gateway_before(cluster) as gateway:
        for schedule in range(schedules):
            random = Random(f"1/{schedule}")
            with closing(Producer(gateway, topic, schedule, random)) as producer:
                for _ in range(3):
                    producer.send(SMALL)
                    producer.send(random.choice(sizes))
            expected.append(producer.sent)
    found: list[list[int]] = [[] for _ in range(schedules)]
    for record in read_log(cluster.bootstrap_servers(), topic):
        found[record.partition].append(len(record.value))
    assert found == expected


@pytest.fixture
def topic(topic_name: Callable[[str], str]) -> str:
    return topic_name("large")


def test_nothing_is_lost_or_doubled_wherever_a_request_breaks_off(cluster: Cluster, topic: str) -> None:
    play(cluster, topic, 6)


@pytest.mark.nightly
def test_sixty_times(cluster: Cluster, topic: str) -> None:
    play(cluster, topic, 60, (*SIZES, 20 * MB))


def test_half_a_request_has_left_and_takes_no_memory(cluster: Cluster, topic: str) -> None:
    create_topic(cluster.bootstrap_servers(), topic, config=LARGEST)
    with gateway_before(cluster) as gateway, closing(Producer(gateway, topic, 0, Random(1))) as producer:
        producer.send(SMALL)
        frame = producer.frame(30 * MB)
        (started,) = gateway.log_events("gateway_starting")
        before_bytes = memory_bytes(started["pid"], "VmRSS")
        passed_before = gateway.metrics().value("pidgate_bytes_total", direction="to_brokers")
        producer.connection.send(frame[: 20 * MB])
        give_up_s = time.monotonic() + 20
        while True:
            passed = gateway.metrics().value("pidgate_bytes_total", direction="to_brokers") - passed_before
            buffered = gateway.metrics().value("pidgate_buffered_bytes")  # counted once a second
            if passed == 20 * MB and buffered == 0:
                break
            assert time.monotonic() < give_up_s, (passed, buffered)
            time.sleep(0.1)
        assert memory_bytes(started["pid"], "VmRSS") - before_bytes < 4 * MB
        producer.connection.send(frame[20 * MB :])
        producer.acknowledged(30 * MB, frame)
    assert [len(record.value) for record in read_log(cluster.bootstrap_servers(), topic)] == [SMALL, 30 * MB]
