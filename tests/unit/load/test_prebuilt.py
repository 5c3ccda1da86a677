"""The load's frames, read by kafka-python's codec, and its answers, written by it."""

import struct
import uuid
from importlib import import_module
from typing import Any

import crc32c
import pytest

from pidgate.load.prebuilt import (
    FETCH_VERSION,
    Fetched,
    FetchFrame,
    LoadError,
    ProduceFrame,
    check_produce_answer,
    read_fetch_answer,
)
from pidgate.protocol.producer_requests import PRODUCE_BY_ID_VERSION as PRODUCE_VERSION
from pidgate.protocol.producer_requests import produce_request
from tests.support.frames import codec
from tools.bench.loads.client import produce_frame, record_batch

FetchRequest, FetchResponse = codec("consumer", "FetchRequest"), codec("consumer", "FetchResponse")
DefaultRecordBatch = import_module("kafka.record.default_records").DefaultRecordBatch
ProduceRequest, ProduceResponse = codec("producer", "ProduceRequest"), codec("producer", "ProduceResponse")

TOPIC_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def produce_answer(correlation_id: int, error_codes: list[int], throttle_time_ms: int = 0) -> memoryview:
    topic = ProduceResponse.TopicProduceResponse
    partition = topic.PartitionProduceResponse
    answer = ProduceResponse(
        version=PRODUCE_VERSION,
        responses=[
            topic(
                version=PRODUCE_VERSION,
                topic_id=TOPIC_ID,
                partition_responses=[
                    partition(
                        version=PRODUCE_VERSION,
                        index=index,
                        error_code=error_code,
                        base_offset=7,
                        record_errors=[],
                        error_message=None,
                    )
                    for index, error_code in enumerate(error_codes)
                ],
            )
        ],
        throttle_time_ms=throttle_time_ms,
    )
    return encoded(answer, correlation_id)


def encoded(answer: Any, correlation_id: int) -> memoryview:
    answer.with_header(correlation_id=correlation_id)
    return memoryview(answer.encode(header=True))


def test_a_produce_frame_is_what_the_codec_reads() -> None:
    batch = record_batch(4711, 3, 100)
    frame = produce_frame(TOPIC_ID.bytes, [5, 6], batch, acks=-1)
    frame.patch(correlation_id=99, number=4)

    assert struct.unpack_from(">i", frame.buffer)[0] == len(frame.buffer) - 4
    request = ProduceRequest.decode(bytes(frame.buffer), version=PRODUCE_VERSION, header=True, framed=True)
    assert request.header.correlation_id == 99
    assert request.acks == -1
    [topic] = request.topic_data
    assert topic.topic_id == TOPIC_ID
    assert [partition.index for partition in topic.partition_data] == [5, 6]
    for partition in topic.partition_data:
        read = DefaultRecordBatch(bytes(partition.records))
        assert read.validate_crc()
        assert (read.producer_id, read.producer_epoch, read.base_sequence) == (4711, 0, 12)
        assert [len(record.value) for record in read] == [100, 100, 100]


def test_batches_of_one_frame_have_sequences_of_their_own() -> None:
    batches = [record_batch(4711, records, 10) for records in (1, 4)]
    request = produce_request(0, "bench", TOPIC_ID.bytes, [*enumerate(batches)])
    frame = ProduceFrame(request, batches, checksum=crc32c.crc32c)
    assert frame.records == [1, 4]
    frame.patch_sequences(7, [20, 300])
    read = ProduceRequest.decode(bytes(frame.buffer), version=PRODUCE_VERSION, header=True, framed=True)
    sent = [DefaultRecordBatch(bytes(part.records)) for part in read.topic_data[0].partition_data]
    assert [(batch.base_sequence, batch.validate_crc()) for batch in sent] == [(20, True), (300, True)]


def test_sequences_wrap_as_the_brokers_expect() -> None:
    frame = produce_frame(TOPIC_ID.bytes, [0], record_batch(1, 1, 10), acks=1)
    frame.patch(0, (1 << 31) + 2)
    request = ProduceRequest.decode(bytes(frame.buffer), version=PRODUCE_VERSION, header=True, framed=True)
    batch = DefaultRecordBatch(bytes(request.topic_data[0].partition_data[0].records))
    assert batch.base_sequence == 2


@pytest.mark.parametrize("partitions", [1, 30, 200])
def test_success_for_every_partition_passes(partitions: int) -> None:
    check_produce_answer(produce_answer(3, [0] * partitions), 3, partitions)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (produce_answer(3, [0, 45]), "partition 1: error code 45"),
        (produce_answer(4, [0, 0]), "answer to request 4"),
        (produce_answer(3, [0]), "short"),
        (produce_answer(3, [0, 0], throttle_time_ms=100), "throttle_time_ms 100"),
    ],
)
def test_any_other_answer_fails_the_run(answer: memoryview, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        check_produce_answer(answer, 3, 2)


def test_a_fetch_frame_is_what_the_codec_reads() -> None:
    frame = FetchFrame("bench", TOPIC_ID.bytes, [2, 3], partition_max_bytes=1 << 20)
    frame.patch(8, [100, 200])
    request = FetchRequest.decode(bytes(frame.buffer), version=FETCH_VERSION, header=True, framed=True)
    assert request.header.correlation_id == 8
    assert (request.session_id, request.session_epoch) == (0, -1)
    [topic] = request.topics
    assert topic.topic_id == TOPIC_ID
    asked = [(partition.partition, partition.fetch_offset) for partition in topic.partitions]
    assert asked == [(2, 100), (3, 200)]
    assert topic.partitions[0].partition_max_bytes == 1 << 20


def fetch_answer(records: list[bytes | None], error_code: int = 0) -> memoryview:
    topic = FetchResponse.FetchableTopicResponse
    answer = FetchResponse(
        version=FETCH_VERSION,
        error_code=0,
        session_id=0,
        responses=[
            topic(
                version=FETCH_VERSION,
                topic_id=TOPIC_ID,
                partitions=[
                    topic.PartitionData(
                        version=FETCH_VERSION,
                        partition_index=index,
                        error_code=error_code,
                        high_watermark=1000,
                        records=content,
                        aborted_transactions=None,
                    )
                    for index, content in enumerate(records)
                ],
            )
        ],
    )
    return encoded(answer, 8)


def test_only_whole_batches_of_a_fetch_answer_count() -> None:
    batch = bytearray(record_batch(1, 5, 10))
    struct.pack_into(">q", batch, 0, 40)
    answer = fetch_answer([bytes(batch) + bytes(batch)[:-1], bytes(batch)[:30], b"", None])
    nothing = Fetched(0, -1, 1000)
    assert read_fetch_answer(answer, 8) == {0: Fetched(5, 45, 1000), 1: nothing, 2: nothing, 3: nothing}


def test_an_error_in_a_fetch_answer_fails_the_run() -> None:
    with pytest.raises(LoadError, match="error code 6"):
        read_fetch_answer(fetch_answer([None], error_code=6), 8)
