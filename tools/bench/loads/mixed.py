"""Produce requests of an application that writes to many topics: hardly one is like the one before.

A Java producer drains, for one broker, at most one batch of every partition that has one: some of its partitions, over
several topics, with batches of any size. So each request here has a choice of its producer's partitions, and batches
of one to 20 records, from 100 bytes to the plan's largest, small ones as often as large ones by magnitude.
"""

import asyncio
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pidgate.load.context import FAILURES, Context, Producer
from pidgate.load.exchanges import message_of
from pidgate.load.loops import OneByOne
from pidgate.load.plan import Plan
from pidgate.load.running import Group, Result, play
from pidgate.load.tally import Tally
from pidgate.protocol import codec
from pidgate.protocol.produce import PRODUCE
from pidgate.protocol.producer_requests import PRODUCE_BY_ID_VERSION
from pidgate.protocol.record_batch import RecordBatch
from tools.bench.loads.client import CLIENT_ID, TIMESTAMP_MS, Through
from tools.bench.loads.played import Mark, measured_run

_LEAST_BATCH_BYTES: Final = 100
_MOST_RECORDS: Final = 20
_CORRELATION_ID_AT: Final = 8
_BATCHES: Final = 50

Place = tuple[bytes, int]
"""Topic id and partition."""


@dataclass(frozen=True, slots=True)
class MixedPlan:
    """`rate_per_s` requests in sum; of each of `topics` a client has `partitions_each` of its own."""

    clients: int
    rate_per_s: float
    topics: int
    partitions_each: int
    largest_batch_bytes: int
    different_requests: int
    acks: int
    warmup_s: float
    measure_s: float


def random_batches(dice: random.Random, largest_bytes: int) -> list[tuple[RecordBatch, int]]:
    """Return batches with the bytes of their values."""
    made = []
    for _ in range(_BATCHES):
        size = _LEAST_BATCH_BYTES * (largest_bytes / _LEAST_BATCH_BYTES) ** dice.random()
        records = dice.randint(1, _MOST_RECORDS)
        record_bytes = max(1, round(size / records))
        values = [dice.randbytes(record_bytes) for _ in range(records)]
        made.append((RecordBatch(values), records * record_bytes))
    return made


class MixedRequest:
    """A request that is encoded once; each sending stamps its batches."""

    def __init__(
        self,
        places: Sequence[Place],
        batches: Sequence[tuple[RecordBatch, int]],
        dice: random.Random,
        acks: int,
    ) -> None:
        self.places = sorted(dice.sample(places, dice.randint(1, len(places))))
        chosen = [dice.choice(batches) for _ in self.places]
        self._batches = [batch for batch, _ in chosen]
        self.payload_bytes = sum(payload_bytes for _, payload_bytes in chosen)
        stamped = [batch.stamped(0, 0, number, TIMESTAMP_MS) for number, batch in enumerate(self._batches)]
        topics: dict[bytes, list[dict[str, object]]] = {}
        for (topic_id, partition), batch in zip(self.places, stamped, strict=True):
            topics.setdefault(topic_id, []).append({"index": partition, "records": batch})
        data = [
            {"topic_id": UUID(bytes=topic_id), "partition_data": parts} for topic_id, parts in topics.items()
        ]
        body = {"transactional_id": None, "acks": acks, "timeout_ms": 30_000, "topic_data": data}
        message = message_of(codec.message_class(PRODUCE, "request"), PRODUCE_BY_ID_VERSION, body)
        self._frame = bytearray(codec.encode_request(0, CLIENT_ID, message))
        self._at = [self._frame.index(batch) for batch in stamped]

    def next_frame(self, correlation_id: int, producer: Producer, sequences: dict[Place, int]) -> bytes:
        """Return the frame with these sequences, which move on."""
        struct.pack_into(">i", self._frame, _CORRELATION_ID_AT, correlation_id)
        for place, at, batch in zip(self.places, self._at, self._batches, strict=True):
            sequence = sequences[place]
            stamped = batch.stamped(*producer, sequence, TIMESTAMP_MS)
            self._frame[at : at + len(stamped)] = stamped
            sequences[place] = batch.next_sequence(sequence)
        return bytes(self._frame)


class _MixedProducer(OneByOne):
    """Requests in turns; an error is counted, and ends the measurement."""

    def __init__(
        self, context: Context, tally: Tally, places: Sequence[Place], requests: Sequence[MixedRequest]
    ) -> None:
        super().__init__(context, tally, 0)
        self._link = self.link_to_leader(0)
        self._requests = requests
        self._sequences = dict.fromkeys(places, 0)
        self._producer: Producer | None = None

    async def prepare(self) -> None:
        self._producer = await self.context.new_producer(await self._link.connection(), self.tally)

    async def do_work(self, due_s: float) -> None:
        assert self._producer is not None
        request = self._requests[self.next_turn() % len(self._requests)]
        try:
            connection = await self._link.connection()
            number = connection.next_correlation_id()
            frame = request.next_frame(number, self._producer, self._sequences)
            answered = await connection.send(frame)
            answer = self.context.read_answer(answered.frame)
        except FAILURES:
            self.tally.count_lost(due_s)
            return await self.count_connection_error()
        self.tally.count_throttle(answer.throttle_time_ms)
        if answer.error_code:
            self.tally.count_refusal(answer.error_code, has_throttle=answer.throttle_time_ms > 0)
            return self.tally.count_lost(due_s)
        return self.tally.count_acknowledged(due_s, answered.arrived_s, 1, request.payload_bytes)

    def end_run(self, end_s: float) -> None:
        super().end_run(end_s)
        self._link.drop()


def run_mixed(through: Through, plan: MixedPlan) -> dict[str, float]:
    """Send the plan; the same choices in each run. Raises LoadError."""
    topic_ids, dice = (through.topic_id, *through.further_topic_ids), random.Random(936)
    batches = random_batches(dice, plan.largest_batch_bytes)
    whole = Plan(
        bootstrap=(through.address,),
        topic_id=through.topic_id,
        clients={},
        duration_s=plan.measure_s,
        warmup_s=plan.warmup_s,
        client_id=CLIENT_ID,
        is_direct=True,
    )

    async def sent(mark: Mark) -> Result:
        context, tally, clients = Context.of(whole), Tally(), []
        await context.cluster.open()
        for number in range(plan.clients):
            mine = range(number * plan.partitions_each, (number + 1) * plan.partitions_each)
            places = [(topic_id, partition) for topic_id in topic_ids for partition in mine]
            requests = [
                MixedRequest(places, batches, dice, plan.acks) for _ in range(plan.different_requests)
            ]
            clients.append(_MixedProducer(context, tally, places, requests))
        groups = {"mixed": Group(clients, tally, plan.rate_per_s)}
        return await play(whole, groups, asyncio.Event(), mark=mark)

    return measured_run(through, sent)[1]
