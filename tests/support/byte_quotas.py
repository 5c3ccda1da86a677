"""What Kafka's own formulas say of bytes, frames of a chosen size, and how fast something really was.

Nothing here asks the code under test: throttles are computed from KIP-13's formula in plain arithmetic, fields of
answers are read where the protocol's schemas have them.
"""

from __future__ import annotations

import struct
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from uuid import UUID

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.frames import batch_of_values
from tests.support.raw import RawClient, decoded, request

PRODUCE, FETCH, METADATA, API_VERSIONS, SHARE_FETCH = 0, 1, 3, 18, 78

WINDOW_S = 10
"""What Kafka's defaults take for the window of a client that has just begun: eleven samples of a second, less one."""

KAFKA_WINDOW_S = 11.0
"""After so long what was recorded is forgotten."""


def throttle_ms(total_bytes: int, rate_bytes_per_s: int, elapsed_ms: float = 0.0) -> float:
    """(O - T) / T x W of KIP-13, of bytes recorded in one second that began `elapsed_ms` ago; below 0: no throttle."""
    window_ms = WINDOW_S * 1000 + elapsed_ms
    observed = total_bytes * 1000 / window_ms
    return (observed - rate_bytes_per_s) / rate_bytes_per_s * window_ms


# Frames


def batch_of(size_bytes: int, *, producer_id: int = -1, base_sequence: int = -1) -> bytes:
    """A record batch of about that size, with one record."""
    return batch_of_values(
        producer_id, -1 if producer_id < 0 else 0, base_sequence, 1, bytes(size_bytes - 80)
    )


def produce(
    version: int,
    topic: str,
    topic_id: UUID | None,
    records: bytes,
    client_id: str,
    *,
    acks: int = -1,
    correlation_id: int = 77,
) -> bytes:
    """A framed Produce request of any version."""
    body = {
        "acks": acks,
        "timeout_ms": 10_000,
        "topic_data": [
            {"name": topic, "topic_id": topic_id, "partition_data": [{"index": 0, "records": records}]}
        ],
    }
    return request(PRODUCE, version, body, correlation_id=correlation_id, client_id=client_id)


def produce_of_size(
    size_bytes: int, version: int, topic: str, topic_id: UUID | None, client_id: str
) -> bytes:
    """The same, with records that make the request (without its size prefix) about as long as that."""
    without = len(produce(version, topic, topic_id, b"", client_id))
    return produce(version, topic, topic_id, batch_of(size_bytes - without), client_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOf:
    """A fetch of partition 0 from an offset."""

    topic: str
    topic_id: UUID | None
    client_id: str | None
    offset: int = 0
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 50 * 1024 * 1024
    max_wait_ms: int = 500
    session_id: int = 0
    session_epoch: int = -1
    forget_nothing_new: bool = False
    """Of a session: name no partition, those of the session are meant."""

    def framed(self, version: int) -> bytes:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": self.offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": self.partition_max_bytes,
        }
        named = [{"topic": self.topic, "topic_id": self.topic_id, "partitions": [partition]}]
        body = {
            "replica_id": -1,
            "max_wait_ms": self.max_wait_ms,
            "min_bytes": 1,
            "max_bytes": self.max_bytes,
            "isolation_level": 0,
            "session_id": self.session_id,
            "session_epoch": self.session_epoch,
            "topics": [] if self.forget_nothing_new else named,
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return request(FETCH, version, body, client_id=self.client_id)


# Answers


def produce_throttle(frame: bytes, version: int) -> int | None:
    """throttle_time_ms of a Produce answer whose partition went well; None: no such field."""
    answer = decoded(PRODUCE, version, frame)
    (topic,) = answer["responses"]
    (partition,) = topic["partition_responses"]
    assert partition["error_code"] == 0, answer
    return None if version == 0 else int(answer["throttle_time_ms"])


@dataclass(frozen=True, slots=True)
class FetchHead:
    throttle_time_ms: int | None
    error_code: int = 0
    session_id: int = 0


def fetch_head(frame: bytes, version: int) -> FetchHead:
    """The beginning of a Fetch answer, however long it is."""
    at = 5 if version >= 12 else 4
    if version == 0:
        return FetchHead(None)
    if version < 7:
        return FetchHead(*struct.unpack_from(">i", frame, at))
    return FetchHead(*struct.unpack_from(">ihi", frame, at))


# Asking


def wait_for_answer_ms(client: RawClient, client_id: str) -> float:
    """How long a request that costs nothing has to wait for its answer."""
    began_s = time.monotonic()
    body = {"client_software_name": "raw", "client_software_version": "1"}
    client.ask(request(API_VERSIONS, 3, body, client_id=client_id))
    return (time.monotonic() - began_s) * 1000


def topic_id_of(address: str, topic: str) -> UUID:
    with RawClient(address) as client:
        return UUID(client.call(METADATA, 12, {"topics": [{"name": topic}]})["topics"][0]["topic_id"])


def alter_client_quota(address: str, rates: dict[str, dict[str, float]]) -> None:
    """The brokers' own quotas by client id: key -> bytes per second."""
    entries = [
        {
            "entity": [{"entity_type": "client-id", "entity_name": client_id}],
            "ops": [{"key": key, "value": rate, "remove": False} for key, rate in of_client.items()],
        }
        for client_id, of_client in rates.items()
    ]
    with RawClient(address) as client:
        answer = client.call(49, 1, {"entries": entries, "validate_only": False})
    assert [entry["error_code"] for entry in answer["entries"]] == [0] * len(entries), answer


def fill(address: str, topic: str, size_bytes: int, *, batch_bytes: int = 100_000) -> None:
    """Put batches of that size into partition 0, directly at the broker."""
    framed = produce(9, topic, None, batch_of(batch_bytes), "fill")
    with RawClient(address) as client:
        for _ in range(100):
            answer = decoded(PRODUCE, 9, client.ask(framed))
            if answer["responses"][0]["partition_responses"][0]["error_code"] == 0:
                break
            time.sleep(0.05)  # the broker has not heard yet that it leads a topic that was just made
        for _ in range(size_bytes // batch_bytes - 1):
            assert produce_throttle(client.ask(framed), 9) == 0


# How fast was it?

Moment = tuple[float, int]
"""Seconds and bytes."""


@dataclass(frozen=True, slots=True)
class Steady:
    """How fast something was, over `over_s` seconds that began at `from_s`.

    `of_windows`: the mean of the rates over all quota windows (eleven seconds, by default) that lie within. This is
    what is held to a quota. Kafka measures over such windows and lets a client send at once what it has not sent
    before, then makes it wait: a plain average therefore goes up and down by a tenth with the moment at which one
    begins to measure, with Kafka's own quotas just the same, and this one does not. `plain` is that plain average.
    """

    from_s: float
    over_s: float
    window_s: float
    of_windows: float
    plain: float
    least: float
    most: float

    def __str__(self) -> str:
        return (
            f"{self.of_windows / 1e6:.3f} MB/s (windows of {self.window_s:g} s within {self.over_s:g} s, from "
            f"{self.least / 1e6:.2f} to {self.most / 1e6:.2f}; plain average {self.plain / 1e6:.3f})"
        )


def steady(
    moments: Iterable[Moment], from_s: float, over_s: float, window_s: float = KAFKA_WINDOW_S
) -> Steady:
    """The rate from `from_s` seconds after the first moment on."""
    ordered = sorted(moments)
    first_s = ordered[0][0]
    times = [at_s - first_s for at_s, _ in ordered]
    sums = [0, *accumulate(size for _, size in ordered)]
    # At the end it may just be waiting.
    assert times[-1] >= from_s + over_s - window_s / 2, f"measured for {times[-1]:.1f} s only"

    def rate(begin_s: float, length_s: float) -> float:
        sent = sums[bisect_right(times, begin_s + length_s)] - sums[bisect_right(times, begin_s)]
        return sent / length_s

    steps = int((over_s - window_s) / 0.05) + 1
    rates = [rate(from_s + number * 0.05, window_s) for number in range(steps)]
    mean = sum(rates) / len(rates)
    return Steady(from_s, over_s, window_s, mean, rate(from_s, over_s), min(rates), max(rates))


def by_second(moments: Sequence[Moment]) -> str:
    """MB in each second, for people."""
    first_s = min(at_s for at_s, _ in moments)
    seconds = [0] * (int(max(at_s for at_s, _ in moments) - first_s) + 1)
    for at_s, size in moments:
        seconds[int(at_s - first_s)] += size
    return " ".join(f"{size / 1e6:.1f}" for size in seconds)


def appended(bootstrap_servers: str, topic: str) -> list[Moment]:
    """When the broker appended each record of a topic with message.timestamp.type=LogAppendTime, and its bytes."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        unfinished = set(partitions)
        moments: list[Moment] = []
        while unfinished:
            for message in consumer.consume(10_000, timeout=10.0):
                error = message.error()
                if error is None:
                    moments.append((message.timestamp()[1] / 1000, len(message.value())))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise KafkaException(error)
        return moments
    finally:
        consumer.close()
