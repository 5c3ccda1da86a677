"""throttle_time_ms found and raised in answers of every version, max_bytes lowered in fetches, and nothing else."""

import struct
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.static.constants import EntityType

from pidgate.protocol import codec, throttle
from pidgate.protocol.errors import MalformedFrame, UnsupportedVersion
from pidgate.protocol.frames import uvarint
from pidgate.protocol.headers import peek_request
from tests.support.bounds import examples, of_each_api
from tests.support.frames import entities, entity_class, request_frame, response_frame, unframed

PRODUCE, FETCH, SHARE_FETCH = 0, 1, 78
PRODUCE_VERSIONS = range(3, 14)
FETCHES = [*((FETCH, version) for version in range(4, 19)), (SHARE_FETCH, 1), (SHARE_FETCH, 2)]
TRIED = of_each_api(FETCHES)
MS = st.integers(0, 2**31 - 1)
BEFORE = b"before"


def held(frame: bytes) -> tuple[bytearray, int, int]:
    """The frame as callers hold it: somewhere in a larger buffer, without its size prefix."""
    return bytearray(BEFORE + frame + b"after"), len(BEFORE), len(BEFORE) + len(frame)


def produce_patched(frame: bytes, version: int, throttle_time_ms: int) -> bytes:
    buf, start, end = held(frame)
    at = throttle.produce_throttle_at(buf, start, end, version)
    assert at is not None
    throttle.write(buf, at, throttle_time_ms)
    assert buf[:start] == BEFORE
    assert buf[end:] == b"after"
    return bytes(buf[start:end])


def fetch_patched(frame: bytes, api_key: int, version: int, throttle_time_ms: int) -> bytes:
    buf, start, end = held(frame)
    at = throttle.fetch_throttle_at(start, api_key, version)
    assert at is not None
    assert at + throttle.THROTTLE_BYTES <= start - 4 + throttle.HEAD_BYTES
    assert throttle.fetch_throttle_in(buf, start, end, api_key, version) == at
    throttle.write(buf, at, throttle_time_ms)
    return bytes(buf[start:end])


def with_throttle(entity: Any, throttle_time_ms: int) -> bytes:
    return response_frame(replace(entity, throttle_time=timedelta(milliseconds=throttle_time_ms)))


# Produce answers


@pytest.mark.parametrize(
    "version", [version for _, version in of_each_api((PRODUCE, one) for one in PRODUCE_VERSIONS)]
)
@settings(max_examples=examples(40))
@given(data=st.data(), ms=MS)
def test_only_the_throttle_of_a_produce_answer_changes(version: int, data: st.DataObject, ms: int) -> None:
    entity = data.draw(entities(entity_class(PRODUCE, version)))
    assert produce_patched(response_frame(entity), version, ms) == with_throttle(entity, ms)


def produce_answer(version: int, throttle_time_ms: int, *, endpoints: int = 0, failed: bool = False) -> Any:
    """As kafka-python's codec writes it."""
    cls = codec.message_class(PRODUCE, "response")
    topic = cls.TopicProduceResponse
    partition = topic.PartitionProduceResponse
    message = cls(
        version=version,
        throttle_time_ms=throttle_time_ms,
        responses=[
            topic(
                version=version,
                name="orders",
                topic_id=None,
                partition_responses=[
                    partition(
                        version=version,
                        index=3,
                        error_code=6 if failed else 0,
                        base_offset=12,
                        log_append_time_ms=-1,
                        log_start_offset=0,
                        record_errors=[],
                        error_message="moved" if failed else None,
                    )
                ],
            )
        ],
        node_endpoints=[
            cls.NodeEndpoint(version=version, node_id=n, host="", port=0, rack=None) for n in range(endpoints)
        ],
    )
    return unframed(codec.encode_response(77, message))


@pytest.mark.parametrize("told", [0, 1, 256, 2_000_000])
@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("endpoints", [0, 1, 3])
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_golden_produce_answers(version: int, endpoints: int, failed: bool, told: int) -> None:
    if endpoints and version < 10:
        endpoints = 0
    before = produce_answer(version, told, endpoints=endpoints, failed=failed)
    after = produce_patched(before, version, 90_000)
    assert after == produce_answer(version, 90_000, endpoints=endpoints, failed=failed)
    assert codec.decode_response(PRODUCE, version, after, 0, len(after)).throttle_time_ms == 90_000


@pytest.mark.parametrize("version", [1, 2])
def test_produce_answers_of_old_brokers(version: int) -> None:
    """Below version 3, which the codec does not write: the throttle ends the frame."""
    partition = struct.pack(">ihq", 0, 0, 5) + (struct.pack(">q", -1) if version == 2 else b"")
    topic = struct.pack(">h", 1) + b"t" + struct.pack(">i", 1) + partition
    frame = struct.pack(">ii", 7, 1) + topic + struct.pack(">i", 0)
    assert produce_patched(frame, version, 70_000) == frame[:-4] + struct.pack(">i", 70_000)


def test_version_0_has_no_field() -> None:
    frame = struct.pack(">ii", 7, 0)
    assert throttle.produce_throttle_at(frame, 0, len(frame), 0) is None
    assert throttle.fetch_throttle_at(0, FETCH, 0) is None
    assert throttle.fetch_throttle_in(frame, 0, len(frame), FETCH, 0) is None


TAGS = st.lists(st.binary(max_size=20), min_size=1, max_size=4)


def tag_buffer(fields: list[bytes], first_tag: int) -> bytes:
    out = uvarint(len(fields))
    for tag, content in enumerate(fields, first_tag):
        out += uvarint(tag) + uvarint(len(content)) + content
    return out


@pytest.mark.parametrize("version", range(9, 14))
@given(fields=TAGS, ms=MS)
def test_tags_behind_a_produce_answer_stay(version: int, fields: list[bytes], ms: int) -> None:
    plain = produce_answer(version, 0)
    assert plain[-1] == 0
    tags = tag_buffer(fields, 9)
    wanted = plain[:-5] + struct.pack(">i", ms) + tags
    assert produce_patched(plain[:-1] + tags, version, ms) == wanted


# Fetch and ShareFetch answers


@pytest.mark.parametrize(("api_key", "version"), TRIED)
@settings(max_examples=examples(40))
@given(data=st.data(), ms=MS)
def test_only_the_throttle_of_a_fetch_answer_changes(
    api_key: int, version: int, data: st.DataObject, ms: int
) -> None:
    entity = data.draw(entities(entity_class(api_key, version)))
    assert fetch_patched(response_frame(entity), api_key, version, ms) == with_throttle(entity, ms)


def fetch_answer(api_key: int, version: int, throttle_time_ms: int) -> bytes:
    """As kafka-python's codec writes it; ShareFetch from Kafka's own schema."""
    fields: dict[str, Any] = {"session_id": 9} if api_key == FETCH else {"acquisition_lock_timeout_ms": 9}
    message = codec.message_class(api_key, "response")(
        version=version,
        throttle_time_ms=throttle_time_ms,
        error_code=0,
        responses=[],
        node_endpoints=[],
        **fields,
    )
    return unframed(codec.encode_response(77, message))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_fetch_answers_of_old_brokers(version: int) -> None:
    frame = struct.pack(">iii", 7, 0, 0)
    assert fetch_patched(frame, FETCH, version, 70_000) == struct.pack(">iii", 7, 70_000, 0)


@pytest.mark.parametrize(("api_key", "version"), [(FETCH, 12), (FETCH, 18), (SHARE_FETCH, 2)])
@given(fields=TAGS, ms=MS)
def test_tags_in_the_header_are_skipped(api_key: int, version: int, fields: list[bytes], ms: int) -> None:
    plain, wanted = (fetch_answer(api_key, version, value) for value in (0, ms))
    tags = tag_buffer(fields, 0)
    tagged = plain[:4] + tags + plain[5:]
    buf, start, end = held(tagged)
    at = throttle.fetch_throttle_in(buf, start, end, api_key, version)
    assert at is not None
    throttle.write(buf, at, ms)
    assert bytes(buf[start:end]) == wanted[:4] + tags + wanted[5:]


@pytest.mark.parametrize(("api_key", "version"), [(FETCH, 11), (FETCH, 12), (SHARE_FETCH, 1)])
def test_the_head_is_enough(api_key: int, version: int) -> None:
    """Nothing behind HEAD_BYTES is needed; with less than the field there is no place yet."""
    frame = fetch_answer(api_key, version, 0)
    place = throttle.fetch_throttle_at(0, api_key, version)
    assert place is not None
    for end in range(len(frame) + 1):
        found = throttle.fetch_throttle_in(frame, 0, end, api_key, version)
        assert found == (place if end >= place + 4 else None)
    assert place + 4 <= throttle.HEAD_BYTES - 4


# The field


@given(told=MS, ours=st.integers(0, 2**40))
@example(told=2**31 - 1, ours=10**10)
def test_the_larger_throttle_wins(told: int, ours: int) -> None:
    buf = bytearray(b"ab" + struct.pack(">i", told) + b"cd")
    said = throttle.raise_to(buf, 2, ours)
    assert said == min(max(told, ours), 2**31 - 1)
    assert buf == b"ab" + struct.pack(">i", said) + b"cd"
    assert throttle.read(buf, 2) == said


def test_the_field_must_be_there() -> None:
    buf = bytearray(7)
    with pytest.raises(MalformedFrame):
        throttle.read(buf, 4)
    with pytest.raises(MalformedFrame):
        throttle.write(buf, 4, 1)
    assert buf == bytes(7)


@pytest.mark.parametrize(("api_key", "version"), [(PRODUCE, 14), (PRODUCE, -1)])
def test_unknown_produce_versions_are_refused(api_key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        throttle.produce_throttle_at(bytes(40), 0, 40, version)


@pytest.mark.parametrize("api_key", [PRODUCE, 3])
def test_other_apis_are_refused(api_key: int) -> None:
    with pytest.raises(UnsupportedVersion):
        throttle.fetch_throttle_at(0, api_key, 1)


# Hostile bytes


@pytest.mark.parametrize("version", range(1, 14))
@settings(max_examples=examples(60))
@given(noise=st.binary(max_size=80), start=st.integers(0, 20), end=st.integers(0, 90))
def test_noise_gives_a_place_inside_the_answer_or_is_malformed(
    version: int, noise: bytes, start: int, end: int
) -> None:
    with suppress(MalformedFrame):
        at = throttle.produce_throttle_at(noise, start, end, version)
        assert at is not None
        assert start <= at <= end - 4
        assert end <= len(noise)
    if start <= end <= len(noise):
        for api_key, fetch_version in ((FETCH, version), (SHARE_FETCH, 1 + version % 2)):
            with suppress(MalformedFrame):
                found = throttle.fetch_throttle_in(noise, start, end, api_key, fetch_version)
                assert found is None or start <= found <= end - 4


@pytest.mark.parametrize("version", range(9, 14))
@settings(max_examples=examples(30))
@given(data=st.data())
def test_a_truncated_produce_answer_is_malformed_or_patched_within(version: int, data: st.DataObject) -> None:
    frame = response_frame(data.draw(entities(entity_class(PRODUCE, version), 2)))
    for end in range(len(frame)):
        with suppress(MalformedFrame):
            at = throttle.produce_throttle_at(frame, 0, end, version)
            assert at is not None
            assert 0 <= at <= end - 4


# Fetches with lowered max_bytes


def lowered(frame: bytes, limit_bytes: int) -> bytes | None:
    buf, start, end = held(frame)
    got = throttle.lowered_fetch(buf, peek_request(buf, start, end), limit_bytes)
    assert buf == BEFORE + frame + b"after"
    return None if got is None else unframed(got)


@pytest.mark.parametrize(("api_key", "version"), TRIED)
@settings(max_examples=examples(40))
@given(data=st.data(), limit_bytes=st.integers(1, 2**40), client_id=st.none() | st.text(max_size=20))
def test_only_max_bytes_is_lowered(
    api_key: int, version: int, data: st.DataObject, limit_bytes: int, client_id: str | None
) -> None:
    entity = data.draw(entities(entity_class(api_key, version, EntityType.request)))
    got = lowered(request_frame(entity, client_id=client_id), limit_bytes)
    if entity.max_bytes <= limit_bytes:
        assert got is None
    else:
        assert got == request_frame(replace(entity, max_bytes=limit_bytes), client_id=client_id)


def fetch_request(api_key: int, version: int, max_bytes: int) -> bytes:
    fields: dict[str, Any] = (
        {"replica_id": -1, "session_id": 4, "session_epoch": 2, "rack_id": "r1"}
        if api_key == FETCH
        else {"group_id": "g", "member_id": "m" * 36, "share_session_epoch": 2}
    )
    message = codec.message_class(api_key, "request")(
        version=version,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[],
        forgotten_topics_data=[],
        **fields,
    )
    return unframed(codec.encode_request(77, "consumer-1", message))


@pytest.mark.parametrize(("api_key", "version"), FETCHES)
def test_golden_fetches(api_key: int, version: int) -> None:
    frame = fetch_request(api_key, version, 50_000_000)
    assert lowered(frame, 1_100_000) == fetch_request(api_key, version, 1_100_000)
    assert lowered(frame, 50_000_000) is None
    assert lowered(frame, 0) == fetch_request(api_key, version, 1), (
        "at least 1 byte: 0 would get nothing for ever"
    )
    assert lowered(fetch_request(api_key, version, 0), 5) is None


def test_the_oldest_fetch_with_max_bytes() -> None:
    """Version 3, which the codec does not write."""
    head = struct.pack(">hhih", 1, 3, 7, 1) + b"c"
    frame = head + struct.pack(">iiiii", -1, 500, 1, 52_428_800, 0)
    assert lowered(frame, 1000) == head + struct.pack(">iiiii", -1, 500, 1, 1000, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_fetches_have_no_max_bytes(version: int) -> None:
    frame = struct.pack(">hhih", 1, version, 7, -1) + struct.pack(">iiii", -1, 500, 1, 0)
    assert lowered(frame, 10) is None


def test_only_fetches_are_lowered() -> None:
    with pytest.raises(UnsupportedVersion):
        lowered(struct.pack(">hhih", 3, 1, 7, -1) + bytes(20), 10)


@pytest.mark.parametrize(("api_key", "version"), FETCHES)
def test_a_fetch_cut_before_max_bytes_is_malformed(api_key: int, version: int) -> None:
    frame = fetch_request(api_key, version, 50_000_000)
    (place,) = (at for at in range(len(frame)) if frame[at : at + 4] == struct.pack(">i", 50_000_000))
    for end in range(place + 4):
        with pytest.raises(MalformedFrame):
            throttle.lowered_fetch(frame, peek_request(frame, 0, end), 1000)
