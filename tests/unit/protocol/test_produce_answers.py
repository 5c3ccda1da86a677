"""Error codes in Produce answers: the quick look never misses one, and is quick for what brokers usually say."""

from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from pidgate.protocol.errors import KafkaProtocolError, UnsupportedVersion
from pidgate.protocol.headers import peek_request
from pidgate.protocol.produce import walk_counting
from pidgate.protocol.produce_answers import (
    is_plain_success,
    may_hold_endpoints,
    may_hold_errors,
)
from tests.support.bounds import examples
from tests.support.frames import (
    entities,
    entity_class,
    partition_errors,
    produce_request,
    record_batch,
    response_frame,
)

VERSIONS = range(3, 14)  # the codec knows none below; those answers are written by hand
CODES = st.sampled_from((0, 0, 0, 0, 0, 0, 3, 6, 45, 47))


def answer(
    version: int, topics: list[tuple[Any, list[tuple[int, int]]]], *, message: str | None = None
) -> bytes:
    """An answer's frame: topic name or id, and its (partition, error code)."""
    cls = entity_class(0, version)
    module = import_module(cls.__module__)
    responses = []
    for topic, partitions in topics:
        found = []
        for index, code in partitions:
            more: Any = (
                {"record_errors": (), "error_message": message if code else None} if version >= 8 else {}
            )
            found.append(
                module.PartitionProduceResponse(
                    index=index, error_code=ErrorCode(code), base_offset=5, log_append_time=None, **more
                )
            )
        key = {"topic_id" if version >= 13 else "name": topic}
        responses.append(module.TopicProduceResponse(**key, partition_responses=tuple(found)))
    return response_frame(cls(responses=tuple(responses), throttle_time=timedelta(0)))


def keyed(version: int, topic: Any) -> bytes:
    key: bytes = b"\x00" + topic.bytes if version >= 13 else topic.encode()
    return key


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_every_error_code_is_found(version: int, data: st.DataObject) -> None:
    names: st.SearchStrategy[Any] = (
        st.uuids() if version >= 13 else st.sampled_from(("orders", "c" * 126, "x" * 200))
    )
    partitions = st.lists(st.tuples(st.integers(0, 9), CODES), max_size=6)
    topics = data.draw(st.lists(st.tuples(names, partitions), max_size=3))
    frame = answer(version, topics, message=data.draw(st.sampled_from((None, "", "out of order"))))
    expected = [
        (keyed(version, topic), index, code) for topic, found in topics for index, code in found if code
    ]
    shared = bytearray(b"abc" + frame + b"\xff" * 300)
    assert partition_errors(shared, 3, 3 + len(frame), version) == expected
    whole = b"abc" + frame + b"\xff" * 300
    if expected:
        assert may_hold_errors(shared, 3, 3 + len(frame), version)
        assert not is_plain_success(whole, 3, 3 + len(frame), version)
    elif version >= 9 and topics and all(found and topic != "x" * 200 for topic, found in topics):
        assert is_plain_success(whole, 3, 3 + len(frame), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partitions", [1, 2, 200])
def test_an_answer_without_errors_is_not_read(version: int, partitions: int) -> None:
    topics: list[Any] = [UUID(int=1), UUID(int=2)] if version >= 13 else ["orders", "clicks"]
    frame = answer(version, [(topic, [(index, 0) for index in range(partitions)]) for topic in topics])
    assert not may_hold_errors(b"abc" + frame + bytes(9), 3, 3 + len(frame), version)


@pytest.mark.parametrize(("version", "entry"), [(0, 14), (1, 14), (2, 22)])
@pytest.mark.parametrize("code", [0, 45])
def test_the_oldest_versions(version: int, entry: int, code: int) -> None:
    partition = (4).to_bytes(4, "big") + code.to_bytes(2, "big") + bytes(entry - 6)
    other = (5).to_bytes(4, "big") + bytes(entry - 4)
    frame = (7).to_bytes(4, "big") + b"\0\0\0\1" + b"\0\6orders" + b"\0\0\0\2" + other + partition
    frame += bytes(4) if version >= 1 else b""
    assert may_hold_errors(frame, 0, len(frame), version) is bool(code)
    assert partition_errors(frame, 0, len(frame), version) == ([(b"orders", 4, code)] if code else [])


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_what_is_not_plain_is_read(version: int, data: st.DataObject) -> None:
    """Random answers, node endpoints and leaders included: no code is missed."""
    entity = data.draw(entities(entity_class(0, version)))
    frame = response_frame(entity)
    codes = [found.error_code for topic in entity.responses for found in topic.partition_responses]
    assert [code for _, _, code in partition_errors(frame, 0, len(frame), version)] == [c for c in codes if c]
    if any(codes):
        assert may_hold_errors(frame, 0, len(frame), version)
    if is_plain_success(frame, 0, len(frame), version):
        assert not any(codes)
        assert entity.throttle_time == timedelta(0)
        assert not may_hold_endpoints(frame, 0, len(frame))


@pytest.mark.parametrize("version", [*VERSIONS, 0, 1, 2])
@settings(max_examples=examples(60))
@given(noise=st.binary(max_size=80))
def test_noise_is_malformed_or_read(version: int, noise: bytes) -> None:
    may_hold_errors(noise, 0, len(noise), version)
    assert not is_plain_success(noise, 0, len(noise), version)
    with suppress(KafkaProtocolError):
        partition_errors(noise, 0, len(noise), version)


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        partition_errors(bytes(30), 0, 30, 14)


@pytest.mark.parametrize("version", [2, 8, 9, 13])
def test_records_are_counted_batch_by_batch(version: int) -> None:
    topic: Any = UUID(int=1) if version >= 13 else "orders"
    several = record_batch(7, count=30) + record_batch(-1, count=9) + record_batch(8, count=4)
    frame = produce_request(
        version,
        [(topic, [(0, record_batch(7, count=12)), (1, several if version < 3 else record_batch(-1))])],
    )
    _, _, batches, counts, _ = walk_counting(frame, peek_request(frame, 0, len(frame)))
    assert counts == ([12, 30, 4] if version < 3 else [12])
    assert [batch[0] for batch in batches] == ([7, 7, 8] if version < 3 else [7])
