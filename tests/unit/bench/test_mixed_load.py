"""Requests that an application with many topics sends, and the beginning of one that never ends."""

import random
import struct
import uuid
from collections import Counter
from importlib import import_module
from itertools import pairwise

from pidgate.load.context import Producer
from pidgate.protocol.producer_requests import PRODUCE_BY_ID_VERSION
from tests.support.frames import codec
from tools.bench.loads.mixed import MixedRequest, random_batches
from tools.bench.loads.unfinished import UnfinishedPlan, beginning

ProduceRequest = codec("producer", "ProduceRequest")
DefaultRecordBatch = import_module("kafka.record.default_records").DefaultRecordBatch

TOPICS = [uuid.UUID(int=number) for number in (1, 2, 3)]
PLACES = [(topic.bytes, partition) for topic in TOPICS for partition in (4, 5)]


def test_each_partition_goes_on_where_it_was_and_no_request_is_like_the_one_before() -> None:
    dice = random.Random(1)
    batches = random_batches(dice, 16_384)
    requests = [MixedRequest(PLACES, batches, dice, acks=1) for _ in range(8)]
    sequences, expected = dict.fromkeys(PLACES, 0), Counter[tuple[uuid.UUID, int]]()
    seen = []
    for number in range(20):
        frame = requests[number % 8].next_frame(number, Producer(4711, 0), sequences)
        request = ProduceRequest.decode(frame, version=PRODUCE_BY_ID_VERSION, header=True, framed=True)
        assert request.header.correlation_id == number
        parts = [(topic.topic_id, part) for topic in request.topic_data for part in topic.partition_data]
        for topic_id, part in parts:
            batch = DefaultRecordBatch(bytes(part.records))
            place = (topic_id, part.index)
            assert batch.validate_crc()
            assert (batch.producer_id, batch.base_sequence) == (4711, expected[place])
            expected[place] += sum(1 for _ in batch)
            assert 60 < len(part.records) < 17_000
        seen.append((len(frame), [(topic_id, part.index) for topic_id, part in parts]))
    assert set(expected) == {(topic, partition) for topic in TOPICS for partition in (4, 5)}
    assert all(one != other for one, other in pairwise(seen))


def test_a_frame_that_never_ends_begins_as_one_that_does() -> None:
    plan = UnfinishedPlan(connections=1, batch_bytes=1_000_000, sent_bytes=400_000, acks=1)
    sent = beginning(TOPICS[0].bytes, 5, 4711, plan)
    assert len(sent) == 400_000
    (announced,) = struct.unpack_from(">i", sent)
    whole = sent + bytes(4 + announced - len(sent))
    request = ProduceRequest.decode(whole, version=PRODUCE_BY_ID_VERSION, header=True, framed=True)
    [topic] = request.topic_data
    [part] = topic.partition_data
    assert (topic.topic_id, part.index, len(part.records)) == (TOPICS[0], 5, 1_000_000)
    batch = DefaultRecordBatch(bytes(part.records))
    assert (batch.producer_id, batch.base_sequence) == (4711, 1)
