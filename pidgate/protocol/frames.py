"""Frames: size prefix, length limit, and bounds-checked readers of Kafka's primitive types. PURE.

Not for the hot path: produce.walk and headers.peek_request parse by themselves. Must not know any API.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from pidgate.protocol.errors import FrameTooLarge, MalformedFrame, TruncatedFrame
from pidgate.protocol.work import TAGS_BYTES_FOR_ONE

Buffer = bytes | bytearray | memoryview
"""Memory that holds a frame. A memoryview must have unsigned byte elements."""

SIZE_PREFIX: Final = 4
"""Bytes of the frame length, a signed big-endian int32."""

MAX_FRAME: Final = 104_857_600
"""Default frame limit, Kafka's default of socket.request.max.bytes (100 MiB)."""

LONGEST_STRING_BYTES: Final = 0x7FFF
"""Short.MAX_VALUE, the limit in Kafka's generated code, also for flexible versions."""

MAX_TAGS: Final = 32
"""Most tagged fields per struct; Kafka 4.3 has at most 9.

Millions of empty fields would block the event loop.
"""

Translate = Callable[[int, str, int], tuple[str, int]]
"""(node id, real host, real port) -> advertised host and port. The callee learns the real address."""

size_prefix = Struct(">i").pack

_I16: Final = Struct(">h").unpack_from
_I32: Final = Struct(">i").unpack_from
_I64: Final = Struct(">q").unpack_from
_F64: Final = Struct(">d").unpack_from
_MAX_UVARINT_BYTES: Final = 5  # a 32 bit unsigned varint: 4 x 7 bits, and 4 bits more
_U32: Final = 0xFFFFFFFF


def framed(*parts: Buffer) -> bytes:
    """Join the parts to a frame with its size prefix. Raises FrameTooLarge."""
    length = sum(map(len, parts))
    if length > 0x7FFFFFFF:
        raise FrameTooLarge(f"a response of {length} bytes does not fit a frame")
    return b"".join((size_prefix(length), *parts))


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint (KIP-482): 7 bits per byte, lowest first, top bit set if more bytes follow."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def array_count(count: int, *, flexible: bool) -> bytes:
    """Encode an array's element count: compact in flexible versions, otherwise an int32."""
    return uvarint(count + 1) if flexible else count.to_bytes(4, "big")


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return (value, position after it) as Kafka's ByteUtils.readUnsignedVarint does.

    Accepts any encoding of up to five bytes and drops the bits above 32, since a different reading would find
    a different length than the broker. Values that are negative in Java are above 2^31 here, longer than any
    frame. The caller checks the position against the end of the frame. Raises TruncatedFrame, or
    MalformedFrame above five bytes.
    """
    value = 0
    try:
        for shift in range(0, 7 * _MAX_UVARINT_BYTES, 7):
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _U32, pos
    except IndexError as error:
        raise TruncatedFrame("a varint runs over the end of the frame") from error
    raise MalformedFrame("a varint is longer than five bytes")


def skip_tags(buf: Buffer, pos: int, end: int) -> int:
    """Return the position after the tag buffer (KIP-482) at `pos`, nearly always one zero byte.

    Raises TruncatedFrame, or MalformedFrame above MAX_TAGS.
    """
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
    """Encode a nullable string: compact in flexible versions, otherwise with an int16 length.

    Raises FrameTooLarge above the limit of the length field.
    """
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    raw = value.encode("utf-8", "replace")
    if flexible:
        return uvarint(len(raw) + 1) + raw
    if len(raw) > 0x7FFF:
        raise FrameTooLarge(f"a string of {len(raw)} bytes does not fit an int16 length")
    return len(raw).to_bytes(2, "big") + raw


class Reader:
    """Cursor over one frame. Every read stays inside the frame or raises MalformedFrame.

    `flexible` selects the compact types of KIP-482 and may be changed between reads, since a header may
    differ from its body. `elements_left` limits the total number of elements in all arrays.
    """

    __slots__ = ("buf", "elements_left", "end", "flexible", "pos")

    def __init__(
        self, buf: Buffer, start: int, end: int, *, flexible: bool = False, most_elements: int = MAX_FRAME
    ) -> None:
        if not 0 <= start <= end <= len(buf):
            raise MalformedFrame("the frame lies outside its buffer")
        self.buf = buf
        self.pos = start
        self.end = end
        self.flexible = flexible
        self.elements_left = most_elements

    def skip(self, length: int) -> int:
        """Skip `length` bytes; return the position before them. Raises MalformedFrame, TruncatedFrame."""
        at = self.pos
        if length < 0:
            raise MalformedFrame(f"a length of {length}")
        if length > self.end - at:
            raise TruncatedFrame(f"{length} bytes wanted at byte {at}, the frame ends at {self.end}")
        self.pos = at + length
        return at

    def read_bytes(self, length: int) -> bytes:
        """Return a copy of the next `length` bytes."""
        at = self.skip(length)
        return bytes(self.buf[at : self.pos])

    def copy_since(self, start: int) -> bytes:
        """Return a copy of the bytes from `start` to the current position."""
        return bytes(self.buf[start : self.pos])

    def i8(self) -> int:
        value = self.buf[self.skip(1)]
        return value - 256 if value > 127 else value

    def i16(self) -> int:
        value: int = _I16(self.buf, self.skip(2))[0]
        return value

    def i32(self) -> int:
        value: int = _I32(self.buf, self.skip(4))[0]
        return value

    def i64(self) -> int:
        value: int = _I64(self.buf, self.skip(8))[0]
        return value

    def f64(self) -> float:
        value: float = _F64(self.buf, self.skip(8))[0]
        return value

    def uvarint(self) -> int:
        """Read an unsigned varint of at most five bytes. Raises TruncatedFrame."""
        value, pos = read_uvarint(self.buf, self.pos)
        if pos > self.end:
            raise TruncatedFrame("a varint runs over the end of the frame")
        self.pos = pos
        return value

    def length(self, *, wide: bool = False) -> int:
        """Read a length: int16 for strings, int32 (`wide`) for bytes and arrays, or compact; null is -1.

        Raises MalformedFrame.
        """
        if self.flexible:
            return self.uvarint() - 1
        length = self.i32() if wide else self.i16()
        if length < -1:
            raise MalformedFrame(f"a length of {length}")
        return length

    def count(self, least_bytes: int, *, nullable: bool = False) -> int:
        """Read an array's element count; null is 0 if `nullable`.

        Raises MalformedFrame if the frame cannot hold that many elements of at least `least_bytes`, and
        FrameTooLarge above `elements_left`.
        """
        count = self.length(wide=True)
        if count < 0 and nullable:
            return 0
        if count < 0 or count * least_bytes > self.end - self.pos:
            raise MalformedFrame(f"{count} elements in {self.end - self.pos} bytes")
        self.spend(count)
        return count

    def raw_string(self) -> bytes | None:
        """Read a nullable string as bytes. Raises MalformedFrame above LONGEST_STRING_BYTES, as Kafka does."""
        length = self.length()
        if length > LONGEST_STRING_BYTES:
            raise MalformedFrame(f"a string of {length} bytes")
        return None if length < 0 else self.read_bytes(length)

    def nullable_string(self) -> str | None:
        """Read a nullable string; invalid UTF-8 is replaced as in Java."""
        raw = self.raw_string()
        return None if raw is None else raw.decode("utf-8", "replace")

    def string(self) -> str:
        """Read a string. Raises MalformedFrame if it is null."""
        value = self.nullable_string()
        if value is None:
            raise MalformedFrame("null string in a field that is not nullable")
        return value

    def skip_string(self) -> None:
        """Skip a nullable string."""
        length = self.length()
        if length > 0:
            self.skip(length)

    def skip_tags(self) -> None:
        """Skip the tag buffer (KIP-482) of a flexible version."""
        if self.flexible:
            at = self.pos
            self.pos = pos = skip_tags(self.buf, at, self.end)
            if pos - at >= TAGS_BYTES_FOR_ONE:
                self.spend((pos - at) // TAGS_BYTES_FOR_ONE)

    def spend(self, elements: int) -> None:
        """Subtract from `elements_left`. Raises FrameTooLarge below 0."""
        self.elements_left -= elements
        if self.elements_left < 0:
            raise FrameTooLarge(f"{-self.elements_left} elements above the limit of the frame")

    def tags(self) -> list[tuple[int, int, int, int]]:
        """Read the tag buffer's fields as (tag, position of its size, of its content, of its end).

        Raises MalformedFrame above MAX_TAGS.
        """
        fields: list[tuple[int, int, int, int]] = []
        count = self.uvarint()
        if count > MAX_TAGS:
            raise MalformedFrame(f"a tag buffer of {count} fields")
        self.spend(count)
        for _ in range(count):
            tag = self.uvarint()
            at = self.pos
            length = self.uvarint()
            content = self.skip(length)
            fields.append((tag, at, content, self.pos))
        return fields

    def finish(self) -> None:
        """Raise MalformedFrame if bytes are left over."""
        if self.pos != self.end:
            raise MalformedFrame(f"{self.end - self.pos} bytes left over")
