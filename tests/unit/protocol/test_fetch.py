"""Fetch and ShareFetch answers: streamed in any chunks, equally long, only node endpoints changed."""

import io
import struct
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.protocol.errors import FrameTooLarge, MalformedFrame, UnsupportedVersion
from pidgate.protocol.fetch import MAX_TAIL, MAX_UNIT, EndpointsWalker, rewrite_tail
from pidgate.protocol.frames import Translate, uvarint
from tests.support.bounds import examples
from tests.support.frames import codec, entities, entity_class, response_frame, streams_addresses, translated

APIS = [(1, 16), (1, 17), (1, 18), (78, 1), (78, 2)]


def shorter(node_id: int, host: str, port: int) -> tuple[str, int]:
    return "g", 9300 + node_id % 100


def same(node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


def longer(node_id: int, host: str, port: int) -> tuple[str, int]:
    return "gateway.of.the.cluster." + "x" * (node_id % 40), 9300 + node_id % 100


TRANSLATIONS = st.sampled_from([shorter, same, longer])


def walk(api_key: int, version: int, frame: bytes, cuts: Iterable[int], translate: Translate) -> bytes:
    """The walker's whole output for a frame that arrives in chunks cut at these offsets."""
    walker = EndpointsWalker(api_key, version, len(frame), translate)
    edges = [0, *sorted(cuts), len(frame)]
    out = b""
    for begin, end in pairwise(edges):
        # A buffer of its own that is overwritten afterwards: nothing may be kept by reference.
        chunk = bytearray(frame[begin:end])
        left = memoryview(chunk)
        while True:  # in turns of three units
            out += b"".join(walker.feed_chunk(left, 3))
            if not walker.unfed_bytes:
                break
            left = left[-walker.unfed_bytes :]
        chunk[:] = b"\xaa" * len(chunk)
    assert walker.done
    return out


def read(version: int, frame: bytes) -> Any:
    """Read by kafka-python's codec, which unlike kio tolerates the padding's tag."""
    return codec("consumer", "FetchResponse").decode(frame, version=version, header=True)


@pytest.mark.parametrize(("api_key", "version"), APIS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_chunks_make_no_difference(api_key: int, version: int, data: st.DataObject) -> None:
    frame = response_frame(data.draw(entities(entity_class(api_key, version))))
    translate = data.draw(TRANSLATIONS)
    whole = walk(api_key, version, frame, [], translate)
    assert len(whole) == len(frame)
    cuts = data.draw(st.lists(st.integers(0, len(frame)), max_size=6))
    assert walk(api_key, version, frame, cuts, translate) == whole
    assert walk(api_key, version, frame, range(1, len(frame)), translate) == whole


@pytest.mark.parametrize(("api_key", "version"), APIS)
@settings(max_examples=examples(100))
@given(data=st.data())
def test_nothing_but_endpoints_is_changed(api_key: int, version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(entity_class(api_key, version)))
    frame = response_frame(entity)
    assert walk(api_key, version, frame, [], same) == frame
    head = response_frame(replace(entity, node_endpoints=()))
    # What stands before the endpoints: without them, the array or the tags are one and two zero lengths.
    before = len(head) - (1 if api_key == 1 else 2)
    for translate in (shorter, longer):
        assert walk(api_key, version, frame, [], translate)[:before] == frame[:before]


@pytest.mark.parametrize(("api_key", "version"), APIS)
@settings(max_examples=examples(100))
@given(data=st.data())
def test_endpoints_of_equal_length_are_translated_in_place(
    api_key: int, version: int, data: st.DataObject
) -> None:
    def as_long(node_id: int, host: str, port: int) -> tuple[str, int]:
        return "g" * len(host.encode()), 9300 + node_id % 100

    entity = data.draw(entities(entity_class(api_key, version)))
    answer = walk(api_key, version, response_frame(entity), [], as_long)
    assert answer == response_frame(translated(entity, as_long))


@pytest.mark.parametrize("version", [16, 17, 18])
@settings(max_examples=examples(100))
@given(data=st.data())
def test_endpoints_are_translated_or_left_out(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(entity_class(1, version)))
    translate = data.draw(TRANSLATIONS)
    answer = read(version, walk(1, version, response_frame(entity), [], translate))
    original = read(version, response_frame(entity))
    expected = [
        (
            e.node_id,
            *(translate(e.node_id, e.host, e.port) if e.host and e.node_id != -1 else (e.host, e.port)),
        )
        for e in entity.node_endpoints
    ]
    found = [(e.node_id, e.host, e.port) for e in answer.node_endpoints]
    assert found == expected[: len(found)]
    if translate is same:
        assert len(found) == len(expected)
    if translate is shorter:
        # One spare byte cannot be filled: then the last endpoint goes.
        assert len(found) >= len(expected) - 1
    assert answer.responses == original.responses


def test_the_real_addresses_are_told_even_of_endpoints_that_do_not_fit() -> None:
    frame = fetch_frame(17, [(1, "a", 9092), (-1, "b", 9092), (2, "", 1), (3, "c", 9094)])
    learnt: list[tuple[int, str, int]] = []

    def learn(node_id: int, host: str, port: int) -> tuple[str, int]:
        learnt.append((node_id, host, port))
        return "much.longer." * 20, port

    answer = read(17, walk(1, 17, frame, [], learn))
    assert learnt == [(1, "a", 9092), (3, "c", 9094)]
    assert answer.node_endpoints == []


def fetch_frame(version: int, endpoints: list[tuple[int, str, int]], records: bytes = b"x") -> bytes:
    response = codec("consumer", "FetchResponse")
    topic = response.FetchableTopicResponse
    partition = topic.PartitionData(
        version=version,
        partition_index=0,
        error_code=0,
        high_watermark=1,
        last_stable_offset=1,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=records,
    )
    message = response(
        version=version,
        throttle_time_ms=0,
        error_code=0,
        session_id=1,
        responses=[topic(version=version, topic_id=None, partitions=[partition])],
        node_endpoints=[
            response.NodeEndpoint(version=version, node_id=n, host=h, port=p, rack=None)
            for n, h, p in endpoints
        ],
    )
    message.with_header(correlation_id=1)
    return bytes(message.encode(header=True, framed=False))


@pytest.mark.parametrize(("api_key", "version"), [(1, 17), (78, 2)])
@settings(max_examples=examples(30))
@given(data=st.data())
def test_a_frame_that_ends_too_early_is_malformed(api_key: int, version: int, data: st.DataObject) -> None:
    frame = response_frame(data.draw(entities(entity_class(api_key, version), 2)))
    for end in range(1, len(frame)):
        with pytest.raises(MalformedFrame):
            walk(api_key, version, frame[:end], [], shorter)
    with pytest.raises(MalformedFrame):
        walk(api_key, version, frame + b"\x00", [], shorter)


def test_records_are_passed_on_in_the_very_chunks_they_came_in() -> None:
    frame = fetch_frame(17, [(1, "broker", 9092)], records=bytes(1_000_000))
    walker = EndpointsWalker(1, 17, len(frame), shorter)
    for begin in range(0, 990_000, 10_000):
        chunk = memoryview(frame)[begin : begin + 10_000]
        (out,) = walker.feed_chunk(chunk)
        assert out is chunk
    assert not walker.done
    rest = b"".join(walker.feed_chunk(memoryview(frame)[990_000:]))
    assert walker.done
    assert len(rest) == len(frame) - 990_000
    assert b"broker" not in rest


def test_a_walker_takes_no_byte_beyond_its_frame() -> None:
    frame = fetch_frame(17, [])
    walker = EndpointsWalker(1, 17, len(frame), shorter)
    with pytest.raises(MalformedFrame, match="left of the frame"):
        walker.feed_chunk(memoryview(frame + b"x"))


def test_memory_is_bounded_between_records() -> None:
    head = struct.pack(">i", 1) + b"\x01\x05" + uvarint(MAX_UNIT * 2)
    walker = EndpointsWalker(1, 17, 10_000_000, shorter)
    for chunk in (head, *[bytes(10_000)] * 6):
        walker.feed_chunk(memoryview(chunk))
    with pytest.raises(FrameTooLarge):
        walker.feed_chunk(memoryview(bytes(10_000)))


@pytest.mark.parametrize("cut", [0, 10, 25])
def test_a_count_may_be_cut_off_before_a_long_chunk(cut: int) -> None:
    """As a topic of 6,000 partitions without news, in a chunk that is longer than what is read again of it."""
    partition = bytes(30) + b"\x01" + bytes(4) + b"\x01\x00"
    topic = bytes(16) + uvarint(6_001) + partition * 6_000 + b"\x00"
    frame = bytes(4) + b"\x00" + bytes(10) + b"\x02" + topic + b"\x00"
    assert walk(1, 17, frame, [cut], same) == frame


def test_memory_is_bounded_after_the_records() -> None:
    frame = fetch_frame(17, [])
    walker = EndpointsWalker(1, 17, len(frame) + MAX_TAIL, shorter)
    with pytest.raises(FrameTooLarge):
        walker.feed_chunk(memoryview(frame))


@pytest.mark.parametrize(("api_key", "version"), [(1, 15), (1, 19), (78, 0), (78, 3), (0, 17)])
def test_other_versions_are_refused(api_key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        EndpointsWalker(api_key, version, 100, shorter)
    assert streams_addresses(api_key, version) == ((api_key, version) in {(1, 19), (78, 0), (78, 3)})


# The tail by itself


def endpoint(node_id: int, host: bytes, port: int = 9092) -> bytes:
    entry = struct.pack(">i", node_id) + uvarint(len(host) + 1) + host + struct.pack(">i", port)
    return entry + b"\x00\x00"


def tail_of(*hosts: bytes, tagged: bool, more: bytes = b"", more_fields: int = 0) -> bytes:
    array = uvarint(len(hosts) + 1) + b"".join(endpoint(n, host) for n, host in enumerate(hosts))
    if tagged:
        return uvarint(1 + more_fields) + b"\x00" + uvarint(len(array)) + array + more
    return array + uvarint(more_fields) + more


@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize(
    "spare", [*range(300), 16_370, 16_383, 16_384, 16_385, 16_386, 16_387, 16_388, 16_389, 20_000]
)
def test_any_number_of_spare_bytes_is_filled(tagged: bool, spare: int) -> None:
    tail = tail_of(b"g" + b"x" * spare, b"h", tagged=tagged)
    new = rewrite_tail(tail, lambda node_id, *_: ("gh"[node_id], 9092), tagged=tagged)
    assert len(new) == len(tail)
    # One spare byte cannot be filled (a tagged field has two): an endpoint goes instead.
    assert endpoint(0, b"g") in new
    assert endpoint(1, b"h") in new or spare == 1
    assert fields_of(new, tagged=tagged)[1:] == [127, 128][: len(fields_of(new, tagged=tagged)) - 1]


def fields_of(tail: bytes, *, tagged: bool) -> list[int]:
    """The tags in a tail, with 0 for the endpoints; read by kafka-python."""
    if not tagged:
        count = tail[0] - 1
        at = 1
        for _ in range(count):
            length = tail[at + 4] - 1
            at += 4 + 1 + length + 4 + 2
        tail = tail[at:]
    fields = [] if tagged else [0]
    decode = codec("schemas.fields.codecs", "UnsignedVarInt32").decode
    data = io.BytesIO(tail)
    for _ in range(decode(data)):
        fields.append(decode(data))
        data.read(decode(data))
    assert not data.read()
    return fields


@pytest.mark.parametrize("tagged", [True, False])
def test_unknown_tags_survive_and_the_padding_follows_them(tagged: bool) -> None:
    more = b"\x07\x03abc" + uvarint(500) + b"\x02zz"
    tail = tail_of(b"broker.internal.example", tagged=tagged, more=more, more_fields=2)
    new = rewrite_tail(tail, shorter, tagged=tagged)
    assert len(new) == len(tail)
    assert more in new
    assert fields_of(new, tagged=tagged) == [0, 7, 500, 501]


@pytest.mark.parametrize("tagged", [True, False])
def test_what_does_not_fit_is_left_out_from_the_end(tagged: bool) -> None:
    tail = tail_of(b"a" * 20, b"b" * 20, b"c" * 20, tagged=tagged)
    new = rewrite_tail(tail, lambda node_id, *_: ("gw" * 14 + str(node_id), 1), tagged=tagged)
    assert len(new) == len(tail)
    assert [b"gw0" in new, b"gw1" in new, b"gw2" in new] == [True, True, False]
    assert not any(host in new for host in (b"aaa", b"bbb", b"ccc"))


@pytest.mark.parametrize("tagged", [True, False])
def test_when_nothing_fits_no_real_address_is_left(tagged: bool) -> None:
    tail = tail_of(b"a", tagged=tagged)
    new = rewrite_tail(tail, lambda *_: ("x" * 100, 1), tagged=tagged)
    assert len(new) == len(tail)
    assert b"a" not in new.replace(b"\x7f", b"")
