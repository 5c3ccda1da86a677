"""What every frame has: a size prefix, a limit, and Kafka's primitive types, read with every bound checked.

Not for the hot path: produce.walk and headers.peek_request read on their own. This module knows no API.
"""

from collections.abc import Callable
from struct import Struct

from pidgate.protocol.errors import FrameTooLarge, MalformedFrame, TruncatedFrame

Buffer = bytes | bytearray | memoryview
"""What a frame may lie in. A memoryview must be one of unsigned bytes."""

SIZE_PREFIX = 4
"""Bytes before each frame that hold its length, a signed big-endian int32."""

MAX_FRAME = 104_857_600
"""Longest frame we take unless configured otherwise: Kafka's default of socket.request.max.bytes (100
MiB)."""

MAX_TAGS = 32
"""Most tagged fields we go over in one struct. Kafka 4.3 has 9 at most; a buffer of millions of empty ones
would stall everybody while it is walked."""

Translate = Callable[[int, str, int], tuple[str, int]]
"""(node id, real host, real port) -> the host and port that a client may see. The callee learns the real
address."""

size_prefix = Struct(">i").pack

_I16 = Struct(">h").unpack_from
_I32 = Struct(">i").unpack_from
_I64 = Struct(">q").unpack_from
_MAX_UVARINT_BYTES = 5  # an unsigned 32 bit varint: 4 x 7 bits, and 4 bits more


def framed(*parts: Buffer) -> bytes:
    """The frame made of these parts, with its size prefix."""
    length = sum(map(len, parts))
    if length > 0x7FFFFFFF:
        raise FrameTooLarge(f"an answer of {length} bytes does not fit a frame")
    return b"".join((size_prefix(length), *parts))


def uvarint(value: int) -> bytes:
    """An unsigned varint (KIP-482): 7 bits a byte, lowest first, the top bit says that more follow."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """(value, position after it). At most five bytes; the caller checks the position against the end of the
    frame."""
    value = 0
    try:
        for shift in range(0, 7 * _MAX_UVARINT_BYTES, 7):
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, pos
    except IndexError as error:
        raise TruncatedFrame("a varint runs over the end of the frame") from error
    raise MalformedFrame("a varint is longer than five bytes")


def skip_tags(buf: Buffer, pos: int, end: int) -> int:
    """The position after the tag buffer (KIP-482) at `pos`; nearly always it is one zero byte."""
    if pos >= end:
        raise TruncatedFrame("a tag buffer beyond the end of the frame")
    if buf[pos] == 0:
        return pos + 1
    tags, pos = read_uvarint(buf, pos)
    if tags > MAX_TAGS:
        raise MalformedFrame(f"a tag buffer of {tags} fields")
    for _ in range(tags):
        _, pos = read_uvarint(buf, pos)
        length, pos = read_uvarint(buf, pos)
        pos += length
        if pos > end:
            raise TruncatedFrame("a tagged field runs over the end of the frame")
    return pos


def encode_string(value: str | None, *, flexible: bool) -> bytes:
    """A (nullable) string in the compact form of flexible versions or in the classic one with an int16
    length."""
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    raw = value.encode("utf-8", "replace")
    if flexible:
        return uvarint(len(raw) + 1) + raw
    if len(raw) > 0x7FFF:
        raise FrameTooLarge(f"a string of {len(raw)} bytes does not fit an int16 length")
    return len(raw).to_bytes(2, "big") + raw


class Reader:
    """A cursor over one frame. Every read stays inside the frame or raises MalformedFrame.

    `flexible` picks the compact types of KIP-482; it can be set at any time (a header may differ from its
    body).
    """

    __slots__ = ("buf", "end", "flexible", "pos")

    def __init__(self, buf: Buffer, start: int, end: int, *, flexible: bool = False) -> None:
        if not 0 <= start <= end <= len(buf):
            raise MalformedFrame("the frame lies outside its buffer")
        self.buf = buf
        self.pos = start
        self.end = end
        self.flexible = flexible

    def skip(self, length: int) -> int:
        """Goes on by `length` bytes and returns where it was."""
        at = self.pos
        if length < 0:
            raise MalformedFrame(f"a length of {length}")
        if length > self.end - at:
            raise TruncatedFrame(f"{length} bytes wanted at byte {at}, the frame ends at {self.end}")
        self.pos = at + length
        return at

    def take(self, length: int) -> bytes:
        """The next `length` bytes, copied."""
        at = self.skip(length)
        return bytes(self.buf[at : self.pos])

    def i8(self) -> int:
        """A signed byte."""
        value = self.buf[self.skip(1)]
        return value - 256 if value > 127 else value

    def i16(self) -> int:
        """A signed 16 bit number."""
        value: int = _I16(self.buf, self.skip(2))[0]
        return value

    def i32(self) -> int:
        """A signed 32 bit number."""
        value: int = _I32(self.buf, self.skip(4))[0]
        return value

    def i64(self) -> int:
        """A signed 64 bit number."""
        value: int = _I64(self.buf, self.skip(8))[0]
        return value

    def uvarint(self) -> int:
        """An unsigned varint of at most five bytes."""
        value, pos = read_uvarint(self.buf, self.pos)
        if pos > self.end:
            raise TruncatedFrame("a varint runs over the end of the frame")
        self.pos = pos
        return value

    def length(self, *, wide: bool = False) -> int:
        """The length before a string (int16), bytes or an array (`wide`, int32), or its compact form; -1 is
        null."""
        if self.flexible:
            return self.uvarint() - 1
        length = self.i32() if wide else self.i16()
        if length < -1:
            raise MalformedFrame(f"a length of {length}")
        return length

    def count(self, least_bytes: int, *, nullable: bool = False) -> int:
        """An array's element count; refused if that many elements of at least `least_bytes` cannot be in the
        frame."""
        count = self.length(wide=True)
        if count < 0 and nullable:
            return 0
        if count < 0 or count * least_bytes > self.end - self.pos:
            raise MalformedFrame(f"{count} elements in {self.end - self.pos} bytes")
        return count

    def raw_string(self) -> bytes | None:
        """A nullable string's bytes."""
        length = self.length()
        return None if length < 0 else self.take(length)

    def nullable_string(self) -> str | None:
        """A nullable string; what is not UTF-8 is replaced, as Java does."""
        raw = self.raw_string()
        return None if raw is None else raw.decode("utf-8", "replace")

    def string(self) -> str:
        """A string that must be there."""
        value = self.nullable_string()
        if value is None:
            raise MalformedFrame("a string is null that must not be")
        return value

    def skip_string(self) -> None:
        """Goes over a nullable string."""
        length = self.length()
        if length > 0:
            self.skip(length)

    def skip_tags(self) -> None:
        """Goes over a tag buffer (KIP-482) if the version has one."""
        if self.flexible:
            self.pos = skip_tags(self.buf, self.pos, self.end)

    def tags(self) -> list[tuple[int, int, int, int]]:
        """The tag buffer's fields as (tag, where its size stands, where its content begins, where it
        ends)."""
        fields: list[tuple[int, int, int, int]] = []
        count = self.uvarint()
        if count > MAX_TAGS:
            raise MalformedFrame(f"a tag buffer of {count} fields")
        for _ in range(count):
            tag = self.uvarint()
            at = self.pos
            length = self.uvarint()
            content = self.skip(length)
            fields.append((tag, at, content, self.pos))
        return fields

    def finish(self) -> None:
        """Raises if bytes are left over."""
        if self.pos != self.end:
            raise MalformedFrame(f"{self.end - self.pos} bytes left over")
