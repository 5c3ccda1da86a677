"""Fetch (api key 1, versions 16-18) and ShareFetch (78, versions 1-2) responses, rewritten while they stream.

A response may hold a hundred megabytes of records. Its length comes first and its node endpoints (KIP-951,
KIP-932) come last. The walker therefore skips records by their length and forwards each chunk unchanged. It
buffers only the tail and replaces it with one of equal length: a tagged field unknown to clients pads the
tail, and endpoints that do not fit are dropped. Node endpoints are a hint; without them a client requests
Metadata.

    head, then per topic: topic, then per partition: partition, aborted ..., records, acquired ..., partition
    end; topic end; tail

Each of these is one unit and is read as a whole. A unit cut off by the end of a chunk is buffered and read
again with the next chunk.
"""

from collections.abc import Callable

from pidgate.protocol.errors import FrameTooLarge, MalformedFrame, TruncatedFrame, UnsupportedVersion
from pidgate.protocol.frames import MAX_FRAME, Buffer, Reader, Translate, uvarint
from pidgate.protocol.splice import Splice, translate_endpoint
from pidgate.protocol.work import MOST_ENDPOINTS

FETCH = 1
SHARE_FETCH = 78

_WALKED = {FETCH: range(16, 19), SHARE_FETCH: range(1, 3)}

MAX_UNIT = 65_536
"""Longest incomplete unit that is buffered. A unit is usually a few hundred bytes of strings and tags."""

MAX_TAIL = 131_072
"""Longest tail: MOST_ENDPOINTS with host names of 100 bytes. It is rewritten in one turn."""

_EMPTY_BYTES = 30 + 1 + 4 + 1 + 1
_EMPTY_SHARED_BYTES = 6 + 1 + 2 + 1 + 8 + 1 + 1 + 1 + 1

_PADDING_TAG = 127
"""The tagged field that pads the tail: above all of Kafka's tags (0 to 9) and still one byte long."""


class EndpointsWalker:
    """Walker over one response of `frame_bytes`. The caller forwards the size prefix unchanged."""

    __slots__ = (
        "_beyond",
        "_carry",
        "_elements",
        "_left",
        "_partitions",
        "_share",
        "_skip",
        "_tail",
        "_topics",
        "_translate",
        "_unit",
        "_version",
        "unfed_bytes",
    )

    def __init__(self, api_key: int, version: int, frame_bytes: int, translate: Translate) -> None:
        if version not in _WALKED.get(api_key, ()):
            raise UnsupportedVersion(api_key, version)
        self._share = api_key == SHARE_FETCH
        self._version = version
        self._translate = translate
        self._left = frame_bytes  # bytes of the frame still to come
        self._carry = b""  # the incomplete unit of the previous chunk
        self._beyond = 0  # bytes of the chunk that the reader of a continued unit does not see
        self._skip = 0  # record bytes to skip
        self._topics = 0  # topics still to come
        self._partitions = 0
        self._elements = 0  # aborted transactions or acquired records still to come
        self._unit: Callable[[Reader], None] | None = self._head
        self._tail = bytearray()
        self.unfed_bytes = 0
        """Bytes at the end of the last chunk that must be fed again in the next turn."""

    def resume(self, walk: tuple[int, int, int, int, int]) -> None:
        """Go on where a lane's walk of this response ended: unit (Unit in gateway/lane/core.h), topics, partitions and
        elements still to come, and record bytes to skip.
        """
        unit, self._topics, self._partitions, self._elements, self._skip = walk
        units = (
            self._head,
            self._topic,
            self._partition,
            self._aborted,
            self._records,
            self._partition_end,
            self._topic_end,
            None,
        )
        self._unit = units[unit - 1]
        # A lane counts the topic and the partition that it reads; here they have been subtracted.
        if self._unit == self._topic:
            self._topics -= 1
        elif self._unit == self._partition:
            self._partitions -= 1

    @property
    def done(self) -> bool:
        """True when the whole frame has been fed."""
        return self._left == 0

    def feed_chunk(self, chunk: memoryview, most_units: int = MAX_FRAME) -> list[bytes | memoryview]:
        """Return the bytes to forward: the chunk itself before the tail, then the complete rewritten tail.

        Reads at most `most_units`; the remaining bytes of the chunk are counted in `unfed_bytes`. The chunk
        must not exceed the frame. Raises TruncatedFrame, MalformedFrame, or FrameTooLarge for a unit above
        the limit.
        """
        length = len(chunk)
        if length > self._left:
            raise MalformedFrame(f"{length} bytes fed, {self._left} left of the frame")
        self._left -= length
        self.unfed_bytes = pos = 0
        while pos < length and self._unit is not None and most_units:
            if self._skip:
                step = min(self._skip, length - pos)
                self._skip -= step
                pos += step
            else:
                pos = self._read(self._unit, chunk, pos)
                most_units -= 1
        if self._unit is not None:
            if pos < length:
                self.unfed_bytes = length - pos
                self._left += self.unfed_bytes
                chunk, length = chunk[:pos], pos
            if self._left == 0:
                raise TruncatedFrame("a fetch response that ends before its tail")
            return [chunk] if length else []
        if len(self._tail) + length - pos + self._left > MAX_TAIL:
            raise FrameTooLarge(f"a fetch response with more than {MAX_TAIL} bytes after its records")
        self._tail += chunk[pos:]
        out: list[bytes | memoryview] = [chunk[:pos]] if pos else []
        if self._left == 0 and length:
            out.append(rewrite_tail(bytes(self._tail), self._translate, tagged=not self._share))
        return out

    def _read(self, unit: Callable[[Reader], None], chunk: memoryview, pos: int) -> int:
        """Read a unit at chunk[pos], continuing the carry if there is one; return the position after it."""
        carried = len(self._carry)
        if carried:
            data = self._carry + chunk[pos : pos + MAX_UNIT]
            self._beyond = len(chunk) - pos + carried - len(data)
            reader = Reader(data, 0, len(data), flexible=True)
        else:
            reader = Reader(chunk, pos, len(chunk), flexible=True)
        begin = reader.pos
        try:
            unit(reader)
        except TruncatedFrame:
            self._carry = bytes(reader.buf[begin:])
            if len(self._carry) > MAX_UNIT:
                raise FrameTooLarge(
                    f"a fetch response with {len(self._carry)} bytes between records"
                ) from None
            return len(chunk)
        if not carried:
            return reader.pos
        self._carry = b""
        self._beyond = 0
        return pos + reader.pos - carried

    def _count(self, reader: Reader, least_bytes: int) -> int:
        count = max(reader.length(wide=True), 0)
        left = self._left + self._beyond + reader.end - reader.pos
        if count * least_bytes > left:
            raise MalformedFrame(f"{count} elements in {left} bytes")
        return count

    # A unit may be read twice, so each reader changes the walker only after its last read.

    def _head(self, reader: Reader) -> None:
        reader.skip(4)
        reader.skip_tags()
        reader.skip(6)
        if self._share:
            reader.skip_string()
        reader.skip(4)  # session id, or ShareFetch's acquisition lock timeout
        self._topics = self._count(reader, 18)
        self._next_topic()

    def _next_topic(self) -> None:
        if self._topics:
            self._topics -= 1
            self._unit = self._topic
        else:
            self._unit = None

    def _topic(self, reader: Reader) -> None:
        reader.skip(16)
        self._partitions = self._count(reader, 22)
        self._next_partition()

    def _next_partition(self) -> None:
        self._unit = self._empty_partitions

    def _empty_partitions(self, reader: Reader) -> None:
        """Skip runs of partitions without records, errors and tags. A chunk may hold thousands of them."""
        skip = _skip_empty_shared if self._share else _skip_empty
        reader.pos, self._partitions = skip(reader.buf, reader.pos, reader.end, self._partitions)
        if self._partitions:
            self._partitions -= 1
            self._unit = self._share_partition if self._share else self._partition
        else:
            self._unit = self._topic_end

    def _partition(self, reader: Reader) -> None:
        reader.skip(30)  # index, error code, high watermark, last stable offset, log start offset
        elements = self._count(reader, 17)
        if elements:
            self._elements = elements
            self._unit = self._aborted
        else:
            self._records(reader)

    def _aborted(self, reader: Reader) -> None:
        self._read_elements(reader, 16, self._records)

    def _read_elements(self, reader: Reader, size: int, following: Callable[[Reader], None]) -> None:
        """Skip one element of this size and its tags, then the following elements without tags."""
        reader.skip(size)
        reader.skip_tags()
        left = self._elements - 1
        buf, p, last = reader.buf, reader.pos, reader.end - size - 1
        while left and p <= last and buf[p + size] == 0:
            p += size + 1
            left -= 1
        reader.pos = p
        self._elements = left
        if not left:
            self._unit = following

    def _records(self, reader: Reader) -> None:
        reader.skip(4)  # preferred read replica
        self._skip = max(reader.length(wide=True), 0)
        self._unit = self._partition_end

    def _share_partition(self, reader: Reader) -> None:
        reader.skip(6)
        reader.skip_string()
        reader.skip(2)
        reader.skip_string()
        reader.skip(8)
        reader.skip_tags()  # tags of the current leader
        self._skip = max(reader.length(wide=True), 0)
        self._unit = self._acquired_head

    def _acquired_head(self, reader: Reader) -> None:
        self._elements = self._count(reader, 19)
        self._unit = self._acquired if self._elements else self._partition_end

    def _acquired(self, reader: Reader) -> None:
        self._read_elements(reader, 18, self._partition_end)

    def _partition_end(self, reader: Reader) -> None:
        reader.skip_tags()
        self._next_partition()

    def _topic_end(self, reader: Reader) -> None:
        reader.skip_tags()
        self._next_topic()


def _skip_empty(buf: Buffer, p: int, end: int, partitions: int) -> tuple[int, int]:
    """Return the position after a run of empty Fetch partitions, and the number of partitions left."""
    last = end - _EMPTY_BYTES
    while partitions and p <= last and buf[p + 30] <= 1 and buf[p + 35] <= 1 and buf[p + 36] == 0:
        p += _EMPTY_BYTES  # no aborted transactions, no records, no tags
        partitions -= 1
    return p, partitions


def _skip_empty_shared(buf: Buffer, p: int, end: int, partitions: int) -> tuple[int, int]:
    """Do the same as `_skip_empty` for ShareFetch."""
    last = end - _EMPTY_SHARED_BYTES
    while partitions and p <= last and buf[p + 6] <= 1 and buf[p + 9] <= 1 and buf[p + 18] == 0:
        # Both error messages, the leader's tags, records and acquired records are empty, and there are no
        # tags.
        if buf[p + 19] > 1 or buf[p + 20] > 1 or buf[p + 21]:
            break
        p += _EMPTY_SHARED_BYTES
        partitions -= 1
    return p, partitions


def rewrite_tail(tail: bytes, translate: Translate, *, tagged: bool) -> bytes:
    """Return the tail of a response with translated node endpoints, at its original length.

    `tagged`: the endpoints are tagged field 0 (Fetch), otherwise an array before the tags (ShareFetch).
    `translate` is also called for endpoints that do not fit. Raises MalformedFrame, and FrameTooLarge above
    MOST_ENDPOINTS.
    """
    reader = Reader(tail, 0, len(tail), flexible=True)
    entries = [] if tagged else _translated(reader, translate)
    fields: list[bytes] = []
    last_tag = 0
    for tag, at, content, end in reader.tags():
        if tagged and tag == 0:
            inner = Reader(tail, content, end, flexible=True)
            entries = _translated(inner, translate)
            inner.finish()
        else:
            fields.append(uvarint(tag) + tail[at:end])
        last_tag = max(last_tag, tag)
    reader.finish()
    if not entries:
        return tail
    padding_tag = max(_PADDING_TAG, last_tag + 1)
    entry_bytes = sum(map(len, entries))
    while True:
        if entry_bytes <= len(tail):
            array = uvarint(len(entries) + 1) + b"".join(entries)
            if not tagged:
                filled = _fill(array, fields, len(tail), padding_tag)
            elif entries:
                field = b"\x00" + uvarint(len(array)) + array
                filled = _fill(b"", [field, *fields], len(tail), padding_tag)
            else:
                filled = _fill(b"", fields, len(tail), padding_tag)
            if filled is not None:
                return filled
        # An empty list always fits: each dropped endpoint frees at least 11 bytes and padding needs 2.
        entry_bytes -= len(entries.pop())


def _translated(reader: Reader, translate: Translate) -> list[bytes]:
    """Read the node endpoints and translate each address."""
    entries: list[bytes] = []
    count = reader.count(11)
    if count > MOST_ENDPOINTS:
        raise FrameTooLarge(f"a fetch response with {count} brokers, the limit is {MOST_ENDPOINTS}")
    for _ in range(count):
        begin = reader.pos
        splice = Splice(reader.buf, begin, begin)
        translate_endpoint(reader, splice, translate)
        after_address = reader.pos
        reader.skip_string()
        reader.skip_tags()
        *address, _ = splice.parts()
        if address:
            entries.append(b"".join((*address, reader.buf[after_address : reader.pos])))
        else:
            entries.append(bytes(reader.buf[begin : reader.pos]))
    return entries


def _fill(head: bytes, fields: list[bytes], length: int, padding_tag: int) -> bytes | None:
    """Return head and a tag buffer of these fields, padded to `length`; None if they cannot be padded to it."""
    for padding_fields in range(3):
        out = head + uvarint(len(fields) + padding_fields) + b"".join(fields)
        padding = _padding(length - len(out), padding_fields, padding_tag)
        if padding is not None:
            return out + padding
    return None


def _padding(length: int, fields: int, tag: int) -> bytes | None:
    """Return this many tagged fields with a total of `length` bytes; None if that is impossible.

    One field needs at least 2 bytes, and the size of its length leaves gaps (130 bytes with a one byte tag,
    for example). Two fields, the first one empty, fill the gaps.
    """
    if fields == 0:
        return b"" if length == 0 else None
    if fields == 2:
        empty = uvarint(tag) + b"\x00"
        rest = _padding(length - len(empty), 1, tag + 1)
        return None if rest is None else empty + rest
    for size_bytes in (1, 2, 3, 4):
        content = length - len(uvarint(tag)) - size_bytes
        if content >= 0 and len(uvarint(content)) == size_bytes:
            return uvarint(tag) + uvarint(content) + bytes(content)
    return None
