"""Produce: the walk and the refusal against kio and kafka-python, the answer's endpoints, hostile bytes."""

import struct
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from pidgate.protocol.errors import FrameTooLarge, KafkaProtocolError, MalformedFrame, UnsupportedVersion
from pidgate.protocol.frames import uvarint
from pidgate.protocol.headers import peek_request
from pidgate.protocol.produce import transactional_id, walk
from pidgate.protocol.produce_answers import may_hold_endpoints, refusal, rewrite_response
from pidgate.protocol.work import MOST_MESSAGES, MOST_OLD_MESSAGES, MOST_PARTITIONS
from tests.support.bounds import examples
from tests.support.frames import (
    Topics,
    codec,
    entities,
    entity_class,
    old_message,
    produce_request,
    read_response,
    record_batch,
    response_frame,
    translated,
    unframed,
)
from tests.support.produce_frames import CLIENT_FRAMES
from tests.support.rules import rule

VERSIONS = range(14)
ProduceResponse = codec("producer", "ProduceResponse")
PRODUCERS = st.tuples(
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.binary(max_size=200),
)
PARTITIONS = st.lists(st.tuples(st.integers(0, 2**31 - 1), PRODUCERS | st.none()), max_size=4)
NAMES = st.text(st.sampled_from("abc-._0"), min_size=1, max_size=200)


def gateway(node_id: int, host: str, port: int) -> tuple[str, int]:
    return f"gw.example.{len(host)}", 9300 + node_id % 1000 + port % 7


def topic_key(version: int, topic: Any) -> bytes:
    key: bytes = b"\x00" + topic.bytes if version >= 13 else topic.encode()
    return key


def entity_topic(version: int) -> Any:
    return UUID(int=version + 1) if version >= 13 else "orders"


@st.composite
def requests(draw: st.DrawFn, version: int) -> tuple[Topics, list[tuple[int, int, int, bytes, int]]]:
    """Topics of a request, and the batches that walk must find in it."""
    topics: Topics = []
    expected = []
    keys: st.SearchStrategy[Any] = st.uuids() if version >= 13 else NAMES
    for topic in draw(st.lists(keys, max_size=3)):
        partitions: list[tuple[int, bytes | None]] = []
        for index, producer in draw(PARTITIONS):
            if producer is None:
                partitions.append((index, None))
                continue
            producer_id, epoch, sequence, records = producer
            partitions.append((index, record_batch(producer_id, epoch, sequence, records=records)))
            if producer_id >= 0:
                expected.append((producer_id, epoch, sequence, topic_key(version, topic), index))
        topics.append((topic, partitions))
    return topics, expected


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_walk_finds_every_producer(version: int, data: st.DataObject) -> None:
    topics, expected = data.draw(requests(version))
    acks = data.draw(st.sampled_from((-1, 0, 1)))
    client_id = data.draw(st.none() | NAMES)
    frame = produce_request(version, topics, acks=acks, client_id=client_id)
    assert walk(frame, peek_request(frame, 0, len(frame))) == (acks, False, expected)
    inside = memoryview(bytearray(b"abc" + frame + frame))
    assert walk(inside, peek_request(inside, 3, 3 + len(frame))) == (acks, False, expected)


@pytest.mark.parametrize(
    ("client", "partitions"),
    [
        ("librdkafka 2.16.1, version 8", [1]),
        ("librdkafka 2.16.1, version 10", [0]),
        ("kafka-python 3.0.12, version 9", [0, 1]),
        ("aiokafka 0.14.0, version 7", [0, 1]),
    ],
)
def test_walk_reads_what_clients_send(client: str, partitions: list[int]) -> None:
    frame = CLIENT_FRAMES[client]
    assert walk(frame, peek_request(frame, 0, len(frame))) == (
        -1,
        False,
        [(4711, 3, 0, b"orders", index) for index in partitions],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_of_a_request_is_malformed(version: int) -> None:
    topic = entity_topic(version)
    topics: Topics = [(topic, [(0, record_batch(4711)), (1, record_batch(4711, records=bytes(200)))])]
    frame = produce_request(version, topics, transactional_id="t")
    for end in range(len(frame)):
        for buf in (frame, frame[:end]):
            with pytest.raises(MalformedFrame):
                walk(buf, peek_request(buf, 0, end))
            with pytest.raises(MalformedFrame):
                refusal(buf, peek_request(buf, 0, end), 100, "no")
    for longer in (frame + b"\x00", frame + b"\x01"):
        with pytest.raises(MalformedFrame):
            walk(longer, peek_request(longer, 0, len(longer)))
        with pytest.raises(MalformedFrame):
            refusal(longer, peek_request(longer, 0, len(longer)), 100, "no")


@settings(max_examples=examples(300))
@given(st.integers(0, 13), st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_protocol_error(version: int, body: bytes) -> None:
    frame = struct.pack(">hhih", 0, version, 1, -1) + body
    try:
        _, _, batches = walk(frame, peek_request(frame, 0, len(frame)))
    except KafkaProtocolError:
        return
    assert len(batches) * 61 <= len(frame)


@pytest.mark.parametrize(("api_key", "version"), [(0, 14), (0, -1), (1, 9)])
def test_what_is_not_a_produce_request_of_ours_is_refused(api_key: int, version: int) -> None:
    frame = struct.pack(">hhih", api_key, version, 1, -1) + bytes(20)
    with pytest.raises(UnsupportedVersion):
        walk(frame, peek_request(frame, 0, len(frame)))
    with pytest.raises(UnsupportedVersion):
        refusal(frame, peek_request(frame, 0, len(frame)), 1, None)


@pytest.mark.parametrize("version", [2, 8, 9])
def test_several_batches_of_one_partition_are_walked(version: int) -> None:
    records = (
        record_batch(1, 2, 3) + old_message(0) + old_message(1) + record_batch(-1) + record_batch(4, 5, 6)
    )
    frame = produce_request(version, [("t", [(7, records)])])
    assert walk(frame, peek_request(frame, 0, len(frame)))[2] == [(1, 2, 3, b"t", 7), (4, 5, 6, b"t", 7)]


@pytest.mark.parametrize("version", [0, 8, 9])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_have_no_producer(version: int, magic: int) -> None:
    for value in (b"", b"x" * 100):
        frame = produce_request(version, [("t", [(0, old_message(magic, value))])])
        assert walk(frame, peek_request(frame, 0, len(frame))) == (-1, False, [])


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize(
    "records",
    [
        record_batch(1)[:-1],
        record_batch(1) + b"\x00",
        record_batch(1) + record_batch(1)[:30],
        record_batch(1)[:8] + b"\xff" * 4 + record_batch(1)[12:],
        record_batch(1)[:16] + b"\x03" + record_batch(1)[17:],
        record_batch(1)[:16] + b"\xff" + record_batch(1)[17:],
        record_batch(1)[:8] + b"\x00\x00\x00\x30" + record_batch(1)[12:60],
        old_message(0, b"")[:-1],
        bytes(10),
    ],
    ids=["cut", "longer", "second-cut", "length", "magic-3", "magic-minus-1", "short", "old-cut", "zeros"],
)
def test_records_that_contradict_themselves_are_malformed(version: int, records: bytes) -> None:
    frame = produce_request(version, [("t", [(0, records)])])
    with pytest.raises(MalformedFrame):
        walk(frame, peek_request(frame, 0, len(frame)))


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_request_is_transactional_if_all_of_it_is(version: int) -> None:
    topic = entity_topic(version)
    in_one = record_batch(1, transactional=True)
    outside = record_batch(1)

    def said(transactional_id: str | None, *records: bytes) -> bool:
        topics: Topics = [(topic, list(enumerate(records)))]
        frame = produce_request(version, topics, transactional_id=transactional_id)
        return walk(frame, peek_request(frame, 0, len(frame)))[1]

    assert said("t", in_one, in_one)
    assert said("t", in_one + in_one)
    assert not said("t", in_one, outside)
    assert not said("t", outside + in_one, in_one)
    assert not said(None, in_one)


def test_records_of_a_negative_length_are_malformed() -> None:
    """-1 is null and 0 is empty; below that a broker refuses the request too."""
    frame = produce_request(3, [("t", [(0, None)])])
    assert frame.endswith((-1).to_bytes(4, "big", signed=True))
    broken = frame[:-4] + (-2).to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedFrame, match="records of -2 bytes"):
        walk(broken, peek_request(broken, 0, len(broken)))


@pytest.mark.parametrize("version", [0, 2, 3, 9])
def test_a_transactional_id_is_read_where_the_version_has_one(version: int) -> None:
    frame = produce_request(version, [("t", [(0, None)])], transactional_id="tx" if version >= 3 else None)
    assert transactional_id(frame, peek_request(frame, 0, len(frame))) == (b"tx" if version >= 3 else None)


def test_tags_of_partitions_are_bounded_too() -> None:
    """They take as long to skip as batches do to read, and 32 of them fit into 65 bytes."""
    tags = b"\x20" + b"".join(bytes((tag, 0)) for tag in range(32))
    each = b"\0\0\0\0" + b"\0" + tags
    head = struct.pack(">hhih", 0, 9, 1, -1) + b"\0\0" + struct.pack(">hi", 1, 5) + b"\x02\x02t"

    def sent(partitions: int) -> bytes:
        return head + uvarint(partitions + 1) + each * partitions + b"\0\0"

    assert walk(few := sent(100), peek_request(few, 0, len(few)))[2] == []
    with pytest.raises(FrameTooLarge):
        walk(many := sent(200), peek_request(many, 0, len(many)))


def test_tags_of_a_request_are_skipped() -> None:
    tags = b"\x02\x00\x01x\x05\x03abc"
    batch = record_batch(9)
    frame = struct.pack(">hhih", 0, 9, 1, -1) + tags + b"\x00" + struct.pack(">hi", 1, 5)
    frame += b"\x02" + b"\x02t" + b"\x02" + struct.pack(">i", 3) + uvarint(len(batch) + 1) + batch + tags * 3
    assert walk(frame, peek_request(frame, 0, len(frame))) == (1, False, [(9, 0, 0, b"t", 3)])
    answer = unframed(refusal(frame, peek_request(frame, 0, len(frame)), 100, "no"))
    assert ProduceResponse.decode(answer, version=9, header=True).responses[0].name == "t"


@rule("The gateway compares every count with a bound before building objects.", "memory")
@pytest.mark.parametrize("version", [2, 3, 9])
def test_a_request_has_a_bounded_number_of_partitions_batches_and_old_messages(version: int) -> None:
    def with_one_more(one_more: int) -> list[Topics]:
        half = MOST_PARTITIONS // 2
        return [
            [("a", [(0, None)] * half), ("b", [(0, None)] * (half - 2 + one_more))],
            [("t", [(0, record_batch(1) * (MOST_PARTITIONS + one_more))])],
            [("t", [(n, old_message(0, b"") * (MOST_OLD_MESSAGES // 2 + n * one_more)) for n in range(2)])],
        ]

    for topics in with_one_more(0):
        frame = produce_request(version, topics)
        walk(frame, peek_request(frame, 0, len(frame)))
    for topics in with_one_more(1):
        frame = produce_request(version, topics)
        with pytest.raises(FrameTooLarge):
            walk(frame, peek_request(frame, 0, len(frame)))


@pytest.mark.parametrize("version", [3, 9])
def test_a_topic_has_a_name_that_kafka_takes(version: int) -> None:
    for length in (1, 249):
        frame = produce_request(version, [("t" * length, [(0, record_batch(1))])])
        assert walk(frame, peek_request(frame, 0, len(frame)))[2][0][3] == b"t" * length
    frame = produce_request(version, [("t" * 250, [(0, record_batch(1))])])
    with pytest.raises(MalformedFrame, match="a topic name of 250 bytes"):
        walk(frame, peek_request(frame, 0, len(frame)))


@pytest.mark.parametrize("version", [0, 3, 8, 9, 13])
def test_an_array_that_is_null_is_malformed(version: int) -> None:
    def null_instead_of(frame: bytes, empty: bytes, null: bytes) -> bytes:
        # The last array of the frame: in flexible versions tag buffers follow it.
        at = frame.rindex(empty)
        return frame[:at] + null + frame[at + len(empty) :]

    flexible = version >= 9
    no_topics = produce_request(version, [])
    no_partitions = produce_request(version, [(entity_topic(version), [])])
    frames = [
        null_instead_of(frame, b"\x01", b"\x00")
        if flexible
        else null_instead_of(frame, bytes(4), b"\xff" * 4)
        for frame in (no_topics, no_partitions)
    ]
    for frame in (no_topics, no_partitions):
        assert walk(frame, peek_request(frame, 0, len(frame))) == (-1, False, [])
    for frame in frames:
        with pytest.raises(MalformedFrame):
            walk(frame, peek_request(frame, 0, len(frame)))
        with pytest.raises(MalformedFrame):
            refusal(frame, peek_request(frame, 0, len(frame)), 100, "no")


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_refusal_answers_every_partition_in_order(version: int, data: st.DataObject) -> None:
    topics, _ = data.draw(requests(version))
    message = data.draw(st.none() | st.text(st.characters(codec="utf-8"), max_size=200))
    throttle_time_ms = data.draw(st.integers(0, 2**31 - 1))
    frame = produce_request(version, topics, correlation_id=-5)
    answer = unframed(refusal(frame, peek_request(frame, 0, len(frame)), throttle_time_ms, message))
    read = ProduceResponse.decode(answer, version=version, header=True)
    assert read.header.correlation_id == -5
    assert read.throttle_time_ms == (throttle_time_ms if version >= 1 else 0)
    said = [
        (topic.topic_id if version >= 13 else topic.name, [p.index for p in topic.partition_responses])
        for topic in read.responses
    ]
    assert said == [(topic, [index for index, _ in partitions]) for topic, partitions in topics]
    for topic in read.responses:
        for partition in topic.partition_responses:
            assert (partition.error_code, partition.base_offset) == (19, -1)
            assert partition.error_message == (message if version >= 8 else None)
    if version >= 3:
        again = read_response(entity_class(0, version), answer)
        assert response_frame(again, correlation_id=-5) == answer
        for topic in again.responses:
            for partition in topic.partition_responses:
                assert partition.error_code is KioErrorCode.not_enough_replicas


@pytest.mark.parametrize("version", [8, 9, 13])
def test_the_sentence_of_a_refusal_is_not_said_for_ever(version: int) -> None:
    topics: Topics = [(entity_topic(version), [(n, None) for n in range(MOST_PARTITIONS - 1)])]
    frame = produce_request(version, topics)
    answer = unframed(refusal(frame, peek_request(frame, 0, len(frame)), 100, "x" * 300))
    (topic,) = ProduceResponse.decode(answer, version=version, header=True).responses
    said = [partition.error_message for partition in topic.partition_responses]
    assert said == ["x" * 300] * MOST_MESSAGES + [None] * (MOST_PARTITIONS - 1 - MOST_MESSAGES)
    assert len(answer) < 6 * len(frame) + 65_536


@pytest.mark.parametrize("version", range(10, 14))
@settings(max_examples=examples(60))
@given(data=st.data())
def test_endpoints_of_an_answer_are_translated(version: int, data: st.DataObject) -> None:
    cls = entity_class(0, version)
    entity = data.draw(entities(cls))
    frame = response_frame(entity)
    learnt: list[tuple[int, str, int]] = []

    def learn(node_id: int, host: str, port: int) -> tuple[str, int]:
        learnt.append((node_id, host, port))
        return gateway(node_id, host, port)

    rewritten = rewrite_response(b"x" + frame + b"y", 1, 1 + len(frame), version, learn)
    named = [(e.node_id, e.host, e.port) for e in entity.node_endpoints if e.node_id != -1 and e.host]
    assert learnt == named
    if named:
        assert rewritten is not None
        assert unframed(rewritten) == response_frame(translated(entity, gateway))
        assert may_hold_endpoints(frame, 0, len(frame))
    else:
        assert rewritten is None


def test_unknown_tags_of_an_answer_survive() -> None:
    endpoint = struct.pack(">i", 5) + b"\x02h" + struct.pack(">i", 9092) + b"\x00" + b"\x01\x09\x02zz"
    head = struct.pack(">i", 1) + b"\x00" + b"\x01" + bytes(4)
    frame = head + b"\x02" + b"\x00" + uvarint(len(endpoint) + 1) + b"\x02" + endpoint + b"\x07\x03abc"
    rewritten = rewrite_response(frame, 0, len(frame), 10, lambda *_: ("gateway", 1))
    assert rewritten is not None
    changed = endpoint.replace(b"\x02h" + struct.pack(">i", 9092), b"\x08gateway" + struct.pack(">i", 1))
    tail = b"\x02" + b"\x00" + uvarint(len(changed) + 1) + b"\x02" + changed + b"\x07\x03abc"
    assert unframed(rewritten) == head + tail


@pytest.mark.parametrize("version", range(10, 14))
def test_every_cut_of_an_answer_is_malformed(version: int) -> None:
    cls = entity_class(0, version)
    topic = entity_topic(version)
    frame = response_frame(answer_entity(cls, topic, ports=(9092,), error=6))
    for end in range(len(frame)):
        for buf in (frame, frame[:end]):
            with pytest.raises(MalformedFrame):
                rewrite_response(buf, 0, end, version, gateway)


def answer_entity(cls: type[Any], topic: Any, ports: tuple[int, ...] = (), error: int = 0) -> Any:
    module = import_module(cls.__module__)
    partition = module.PartitionProduceResponse(
        index=0,
        error_code=KioErrorCode(error),
        base_offset=17,
        log_append_time=None,
        log_start_offset=0,
        record_errors=(),
        current_leader=module.LeaderIdAndEpoch(),
    )
    topics = module.TopicProduceResponse(
        **{"topic_id" if cls.__version__ >= 13 else "name": topic}, partition_responses=(partition,)
    )
    endpoints = tuple(
        module.NodeEndpoint(node_id=n, host="h", port=p, rack=None) for n, p in enumerate(ports)
    )
    return cls(responses=(topics,), throttle_time=timedelta(0), node_endpoints=endpoints)


@pytest.mark.parametrize("version", range(10, 14))
def test_an_ordinary_answer_needs_no_walk(version: int) -> None:
    cls = entity_class(0, version)
    frame = response_frame(answer_entity(cls, entity_topic(version)))
    assert not may_hold_endpoints(b"abc" + frame + b"\x00" * 9, 3, 3 + len(frame))
    assert rewrite_response(frame, 0, len(frame), version, gateway) is None


ENDPOINTS = st.lists(
    st.tuples(
        st.integers(0, 9), st.sampled_from(["", "h"]), st.integers(0, 2**31 - 1), st.none() | st.just("")
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("version", range(10, 14))
@given(endpoints=ENDPOINTS)
@example(endpoints=[(0, "", 0, None)])
@example(endpoints=[(0, "h", 0, None)])
@example(endpoints=[(0, "h", 0x01000000, None)])
def test_the_quick_look_never_misses_endpoints(
    version: int, endpoints: list[tuple[int, str, int, str | None]]
) -> None:
    cls = entity_class(0, version)
    module = import_module(cls.__module__)
    plain = answer_entity(cls, entity_topic(version))
    nodes = tuple(module.NodeEndpoint(node_id=n, host=h, port=p, rack=r) for n, h, p, r in endpoints)
    answer = cls(responses=plain.responses, throttle_time=timedelta(0), node_endpoints=nodes)
    frame = response_frame(answer)
    assert may_hold_endpoints(frame, 0, len(frame))


def test_answers_below_version_10_hold_no_endpoints_and_above_13_are_unknown() -> None:
    assert rewrite_response(b"", 0, 0, 9, gateway) is None
    with pytest.raises(UnsupportedVersion):
        rewrite_response(b"", 0, 0, 14, gateway)
