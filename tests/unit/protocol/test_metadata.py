"""Metadata: only the head is written anew; topic ids against both codecs; hostile bytes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.protocol.errors import KafkaProtocolError, MalformedFrame, UnsupportedVersion
from pidgate.protocol.metadata import splice, topic_ids
from tests.support.bounds import examples
from tests.support.frames import (
    codec,
    entities,
    entity_class,
    read_response,
    response_frame,
    translated,
    unframed,
)


def gateway(node_id: int, host: str, port: int) -> tuple[str, int]:
    return f"gw.example.{len(host)}", 9300 + node_id % 1000 + port % 7


@pytest.mark.parametrize("version", range(14))
@settings(max_examples=examples(40))
@given(data=st.data())
def test_the_answer_is_rewritten(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(entity_class(3, version)))
    frame = response_frame(entity)
    buf = memoryview(bytearray(b"xyz" + frame + b"next"))
    end = 3 + len(frame)
    whole = splice(buf, 3, end, version, gateway)
    assert unframed(whole) == response_frame(translated(entity, gateway))


@pytest.mark.parametrize("version", range(14))
def test_the_real_addresses_are_told_in_order(version: int) -> None:
    cls = entity_class(3, version)
    entity = brokers_only(cls, [(1, "a", 9092), (-1, "b", 9092), (5, "", 9092), (1000, "c", 1)])
    frame = response_frame(entity)
    learnt: list[tuple[int, str, int]] = []

    def learn(node_id: int, host: str, port: int) -> tuple[str, int]:
        learnt.append((node_id, host, port))
        return host, port

    assert unframed(splice(frame, 0, len(frame), version, learn)) == frame
    assert learnt == [(1, "a", 9092), (1000, "c", 1)]


def brokers_only(cls: Any, brokers: list[tuple[int, str, int]]) -> Any:
    """A decoded answer with these brokers and no topic: the codec fills in the rest of the version's
    fields."""
    metadata_response = codec("metadata", "MetadataResponse")
    version = cls.__version__
    message = metadata_response(
        version=version,
        brokers=[
            metadata_response.MetadataResponseBroker(version=version, node_id=n, host=h, port=p, rack=None)
            for n, h, p in brokers
        ],
        topics=[],
    )
    message.with_header(correlation_id=7)
    return read_response(cls, bytes(message.encode(header=True, framed=False)))


@pytest.mark.parametrize("version", range(14))
def test_every_cut_of_the_head_is_malformed(version: int) -> None:
    frame = response_frame(brokers_only(entity_class(3, version), [(1, "host", 9092), (2, "other", 9093)]))
    until = frame.index(b"other") + 5 + 4
    for end in range(until):
        for buf in (frame, frame[:end]):
            with pytest.raises(MalformedFrame):
                splice(buf, 0, end, version, gateway)


def test_unknown_tags_of_a_broker_survive() -> None:
    broker = b"\x00\x00\x00\x01" + b"\x02h" + b"\x00\x00\x23\x84" + b"\x00" + b"\x01\x07\x03abc"
    before = bytes(4) + b"\x01\x05\x01z" + bytes(4) + b"\x02"
    frame = before + broker + b"the rest"
    changed = broker.replace(b"\x02h\x00\x00\x23\x84", b"\x03gw\x00\x00\x00\x01")
    assert unframed(splice(frame, 0, len(frame), 12, lambda *_: ("gw", 1))) == before + changed + b"the rest"


@pytest.mark.parametrize("version", range(10, 14))
@settings(max_examples=examples(60))
@given(data=st.data())
def test_topic_ids_are_told(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(entity_class(3, version)))
    frame = response_frame(entity)
    told = list(topic_ids(b"x" + frame + b"y", 1, 1 + len(frame), version))
    known = [(t.name, t.topic_id) for t in entity.topics]
    assert told == [(name, uuid.bytes) for name, uuid in known if name is not None and uuid is not None]
    read = codec("metadata", "MetadataResponse").decode(frame, version=version, header=True)
    assert told == [(t.name, t.topic_id.bytes) for t in read.topics if t.name is not None and t.topic_id]


@pytest.mark.parametrize("version", range(10))
def test_older_answers_have_no_topic_ids(version: int) -> None:
    frame = response_frame(brokers_only(entity_class(3, version), [(1, "host", 9092)]))
    assert list(topic_ids(frame, 0, len(frame), version)) == []


@settings(max_examples=examples(20))
@given(entities(entity_class(3, 12), 2))
def test_every_cut_of_the_topics_gives_a_part_or_is_malformed(entity: Any) -> None:
    frame = response_frame(entity)
    whole = list(topic_ids(frame, 0, len(frame), 12))
    for end in range(len(frame)):
        told = []
        try:
            for pair in topic_ids(frame, 0, end, 12):
                told.append(pair)
        except MalformedFrame:
            pass
        assert told == whole[: len(told)]


@settings(max_examples=examples(300))
@given(st.integers(0, 13), st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_protocol_error(version: int, data: bytes) -> None:
    try:
        told = list(topic_ids(data, 0, len(data), version))
    except KafkaProtocolError:
        told = []
    assert len(told) * 26 <= len(data)
    try:
        answer = splice(data, 0, len(data), version, gateway)
    except KafkaProtocolError:
        return
    assert unframed(answer)[:4] == data[:4]


def test_a_version_above_ours_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        splice(bytes(30), 0, 30, 14, gateway)
    with pytest.raises(UnsupportedVersion):
        next(topic_ids(bytes(30), 0, 30, 14))


def test_null_arrays_of_a_partition_are_empty() -> None:
    topic_id = bytes(range(16))
    partition = bytes(14) + b"\x00\x00\x00" + b"\x00"
    topic = bytes(2) + b"\x02t" + topic_id + b"\x00" + b"\x03" + partition * 2 + bytes(4) + b"\x00"
    frame = bytes(4) + b"\x00" + bytes(4) + b"\x01" + b"\x00" + bytes(4) + b"\x03" + topic * 2 + b"\x00"
    assert list(topic_ids(frame, 0, len(frame), 12)) == [("t", topic_id)] * 2
