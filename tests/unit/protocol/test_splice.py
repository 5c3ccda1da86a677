"""Replacing parts of a frame: what is not replaced stays byte for byte."""

from collections.abc import Iterator

import pytest

from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.frames import Reader
from pidgate.protocol.splice import Splice, splice_tag, translate_endpoint


def upper(reader: Reader, splice: Splice) -> Iterator[None]:
    at = reader.pos
    splice.replace(at, reader.end, reader.read_bytes(reader.end - at).upper() + b"!")
    yield


@pytest.mark.parametrize("buf", [b"xxabcdefyy", memoryview(bytearray(b"xxabcdefyy"))])
def test_replacements_go_from_front_to_back(buf: bytes | memoryview) -> None:
    splice = Splice(buf, 2, 8)
    assert not splice.changed
    splice.replace(3, 4, b"BBB")
    splice.replace(6, 6, b"-")
    assert splice.changed
    assert splice.framed() == b"\x00\x00\x00\x09aBBBcd-ef"


def test_only_the_tag_asked_for_is_changed_and_its_size_follows() -> None:
    tags = b"\x03\x00\x02ab\x01\x03cde\x09\x00"
    reader = Reader(tags, 0, len(tags), flexible=True)
    splice = Splice(tags, 0, len(tags))
    assert len(list(splice_tag(reader, splice, 1, upper))) == 1
    reader.finish()
    assert b"".join(splice.parts()) == b"\x03\x00\x02ab\x01\x04CDE!\x09\x00"


def test_a_tag_that_is_longer_than_its_content_is_malformed() -> None:
    tags = b"\x01\x00\x02ab"
    reader = Reader(tags, 0, len(tags), flexible=True)

    def one_byte(inner: Reader, _: Splice) -> Iterator[None]:
        inner.skip(1)
        yield

    with pytest.raises(MalformedFrame, match="1 bytes left over"):
        list(splice_tag(reader, Splice(tags, 0, len(tags)), 0, one_byte))


@pytest.mark.parametrize(("node_id", "host"), [(-1, b"h"), (3, b"")])
def test_nobodys_address_stays(node_id: int, host: bytes) -> None:
    entry = node_id.to_bytes(4, "big", signed=True) + len(host).to_bytes(2, "big") + host + b"\xff" * 4
    reader = Reader(entry, 0, len(entry))
    splice = Splice(entry, 0, len(entry))
    translate_endpoint(reader, splice, lambda *_: ("never", 1))
    reader.finish()
    assert not splice.changed
