"""Requests that an application with many topics sends, and the beginning of one that never ends."""

import random
import struct
import uuid
from collections import Counter
from importlib import import_module
from itertools import pairwise

import pytest

from pidgate.load.prebuilt import LoadError
from pidgate.protocol.producer_requests import PRODUCE_BY_ID_VERSION
from tests.support import raw
from tests.support.frames import codec
from tools.bench.loads.mixed import MixedPlan, MixedRequests
from tools.bench.loads.unfinished import UnfinishedPlan, beginning

ProduceRequest = codec("producer", "ProduceRequest")
DefaultRecordBatch = import_module("kafka.record.default_records").DefaultRecordBatch

TOPICS = [uuid.UUID(int=number) for number in (1, 2, 3)]
PLACES = [(topic.bytes, partition) for topic in TOPICS for partition in (4, 5)]
PLAN = MixedPlan(
    producers=1,
    rate_per_s=1,
    topics=3,
    partitions_each=2,
    largest_batch_bytes=16_384,
    different_requests=8,
    acks=1,
    warmup_s=0,
    measure_s=1,
)


def test_each_partition_goes_on_where_it_was_and_no_request_is_like_the_one_before() -> None:
    requests = MixedRequests(PLACES, 4711, PLAN, random.Random(1))
    expected: Counter[tuple[uuid.UUID, int]] = Counter()
    seen = []
    for number in range(20):
        frame = bytes(requests.request(number))
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


def test_an_answer_with_an_error_ends_the_load() -> None:
    requests = MixedRequests(PLACES, 4711, PLAN, random.Random(1))

    def answer(error_code: int) -> memoryview:
        part = {
            "index": 4,
            "error_code": error_code,
            "base_offset": 0,
            "record_errors": [],
            "error_message": None,
        }
        body = {"responses": [{"topic_id": TOPICS[0], "partition_responses": [part]}], "throttle_time_ms": 0}
        return memoryview(raw.response(0, PRODUCE_BY_ID_VERSION, body, correlation_id=3)[4:])

    requests.check(answer(0), 3)
    with pytest.raises(LoadError, match="to request 4"):
        requests.check(answer(0), 4)
    with pytest.raises(LoadError, match="error_code=45"):
        requests.check(answer(45), 3)


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
