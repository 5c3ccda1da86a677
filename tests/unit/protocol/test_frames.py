"""Primitive types: bounds, varints, tags."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.protocol.errors import FrameTooLarge, MalformedFrame, TruncatedFrame
from pidgate.protocol.frames import MAX_TAGS, Reader, encode_string, read_uvarint, skip_tags, uvarint
from tests.support.frames import codec
from tests.support.rules import rule

ROOT = Path(__file__).resolve().parents[3]


@given(st.integers(0, 2**32 - 1))
def test_varints_are_the_codecs(value: int) -> None:
    encoded = uvarint(value)
    assert encoded == bytes(codec("schemas.fields.codecs", "UnsignedVarInt32").encode(value))
    assert read_uvarint(b"x" + encoded, 1) == (value, 1 + len(encoded))
    with pytest.raises(TruncatedFrame):
        read_uvarint(encoded[:-1], 0)


@pytest.mark.parametrize(
    ("form", "value"),
    [("11", 17), ("9180808000", 17), ("9180808010", 17), ("91808080f0", None), ("ffffffff7f", 2**32 - 1)],
)
def test_bits_above_32_are_dropped_as_kafka_drops_them(form: str, value: int | None) -> None:
    """Else a name whose length is written so would be one to a broker, and none here."""
    encoded = bytes.fromhex(form)
    if value is None:
        with pytest.raises(MalformedFrame):
            read_uvarint(encoded, 0)
    else:
        assert read_uvarint(encoded, 0) == (value, len(encoded))


@rule("Numbers, strings and headers have one parser, exact as Kafka's.", "protocol")
def test_varints_are_read_in_one_place() -> None:
    """And by hand, up to three bytes of them, in the two modules that every Produce goes through."""
    by_hand = {
        str(path.relative_to(ROOT))
        for room in ("pidgate", "tools")
        for path in (ROOT / room).rglob("*.py")
        if re.search(r"& 0x7F\b", path.read_text("utf-8"))
    }
    assert by_hand == {
        "pidgate/protocol/frames.py",
        "pidgate/protocol/produce.py",
        "pidgate/protocol/repeated_produce.py",
    }


def test_a_varint_of_six_bytes_is_malformed() -> None:
    with pytest.raises(MalformedFrame, match="longer than five"):
        read_uvarint(b"\xff" * 80_000, 0)


def test_a_string_too_long_for_its_length_is_refused() -> None:
    with pytest.raises(FrameTooLarge):
        encode_string("x" * 32_768, flexible=False)


@pytest.mark.parametrize("read", ["i8", "i16", "i32", "i64", "uvarint"])
def test_nothing_is_read_beyond_the_frame(read: str) -> None:
    reader = Reader(bytes(20), 5, 5)
    with pytest.raises(TruncatedFrame):
        getattr(reader, read)()


@pytest.mark.parametrize(
    ("data", "flexible"), [(b"\x00\x00\x00\x04abc", False), (b"\x05abc", True), (b"\xff\xff\xff\xff", False)]
)
def test_a_count_never_exceeds_the_bytes_left(data: bytes, flexible: bool) -> None:
    with pytest.raises(MalformedFrame, match="elements"):
        Reader(data, 0, len(data), flexible=flexible).count(1)


def test_a_length_below_null_is_malformed() -> None:
    with pytest.raises(MalformedFrame, match="length of -2"):
        Reader(b"\xff\xfe", 0, 2).length()


def test_tags_are_bounded_in_number() -> None:
    fields = b"\x01\x00"
    for count in (MAX_TAGS, MAX_TAGS + 1):
        tags = uvarint(count) + fields * count
        reader = Reader(tags, 0, len(tags), flexible=True)
        if count <= MAX_TAGS:
            assert skip_tags(tags, 0, len(tags)) == len(tags)
            assert len(reader.tags()) == count
        else:
            with pytest.raises(MalformedFrame, match="33 fields"):
                skip_tags(tags, 0, len(tags))
            with pytest.raises(MalformedFrame, match="33 fields"):
                reader.tags()


def test_bytes_left_over_are_malformed() -> None:
    with pytest.raises(MalformedFrame, match="2 bytes left over"):
        Reader(bytes(2), 0, 2).finish()
