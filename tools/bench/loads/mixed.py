"""Produce requests as an application sends them that writes to many topics: hardly one is like the one before.

A Java producer drains, for one broker, at most one batch of every partition that has one: some of its partitions, over
several topics, with batches of what happened to gather. So each request here has a choice of its producer's partitions,
and batches of one to 20 records, from 100 bytes to the plan's largest, small ones as often as large ones by magnitude.
"""

import random
import select
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import crc32c

from pidgate.load.exchanges import message_of
from pidgate.load.prebuilt import LoadError, ProduceFrame
from pidgate.protocol import codec
from pidgate.protocol.produce import PRODUCE
from pidgate.protocol.producer_requests import PRODUCE_BY_ID_VERSION, produce_answer
from pidgate.protocol.record_batch import MAX_SEQUENCE
from tools.bench.loads.client import CLIENT_ID, Through, connect, new_producer_id, record_batch
from tools.bench.loads.paced import Producer, Requests, send_paced

_LEAST_BATCH_BYTES: Final = 100
_MOST_RECORDS: Final = 20

Place = tuple[bytes, int]
"""Topic id and partition."""


@dataclass(frozen=True, slots=True)
class MixedPlan:
    """`rate_per_s` requests in sum; of each of `topics` a producer has `partitions_each` of its own."""

    producers: int
    rate_per_s: float
    topics: int
    partitions_each: int
    largest_batch_bytes: int
    different_requests: int
    acks: int
    warmup_s: float
    measure_s: float


class MixedRequests(Requests):
    """So many different requests in turn, built once; each partition has its own sequence."""

    def __init__(
        self, places: Sequence[Place], producer_id: int, plan: MixedPlan, dice: random.Random
    ) -> None:
        self._next_sequence = dict.fromkeys(places, 0)
        self._requests: list[tuple[list[Place], ProduceFrame]] = []
        payload_bytes = 0
        for _ in range(plan.different_requests):
            chosen = sorted(dice.sample(places, dice.randint(1, len(places))))
            batches = []
            for _ in chosen:
                size = _LEAST_BATCH_BYTES * (plan.largest_batch_bytes / _LEAST_BATCH_BYTES) ** dice.random()
                records = dice.randint(1, _MOST_RECORDS)
                record_bytes = max(1, round(size / records))
                payload_bytes += records * record_bytes
                batches.append(record_batch(producer_id, records, record_bytes))
            request = _produce_request(chosen, batches, plan.acks)
            self._requests.append((chosen, ProduceFrame(request, batches, checksum=crc32c.crc32c)))
        self.payload_bytes = payload_bytes / plan.different_requests

    def request(self, number: int) -> bytearray:
        places, frame = self._requests[number % len(self._requests)]
        sequences = [self._next_sequence[place] for place in places]
        frame.patch_sequences(number, sequences)
        for place, sequence, records in zip(places, sequences, frame.records, strict=True):
            self._next_sequence[place] = sequence + records & MAX_SEQUENCE
        return frame.buffer

    def check(self, answer: memoryview, number: int) -> None:
        """Check the answer to request `number`. Raises LoadError."""
        correlation_id = struct.unpack_from(">i", answer)[0]
        read = produce_answer(bytes(answer), PRODUCE_BY_ID_VERSION)
        if correlation_id != number or read.error_code or read.throttle_time_ms:
            raise LoadError(f"answer {correlation_id} to request {number}: {read}")


def _produce_request(places: Sequence[Place], batches: Sequence[bytes], acks: int) -> bytes:
    topics: dict[bytes, list[dict[str, object]]] = {}
    for (topic_id, partition), batch in zip(places, batches, strict=True):
        topics.setdefault(topic_id, []).append({"index": partition, "records": batch})
    body = {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 30_000,
        "topic_data": [
            {"topic_id": UUID(bytes=topic_id), "partition_data": parts} for topic_id, parts in topics.items()
        ],
    }
    message = message_of(codec.message_class(PRODUCE, "request"), PRODUCE_BY_ID_VERSION, body)
    return codec.encode_request(0, CLIENT_ID, message)


def run_mixed(through: Through, plan: MixedPlan) -> dict[str, float]:
    """Send the plan; the same choices in each run."""
    topic_ids = (through.topic_id, *through.further_topic_ids)
    poll = select.epoll()
    dice, producers = random.Random(936), []
    for number in range(plan.producers):
        connection = connect(through.address)
        mine = range(number * plan.partitions_each, (number + 1) * plan.partitions_each)
        places = [(topic_id, partition) for topic_id in topic_ids for partition in mine]
        requests = MixedRequests(places, new_producer_id(connection), plan, dice)
        producers.append(Producer(connection, requests))
    return send_paced(producers, poll, plan.rate_per_s, plan.warmup_s, plan.measure_s, through.watch)
