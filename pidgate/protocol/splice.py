"""Replace parts of a frame and keep all other bytes, unknown tagged fields included.

The walkers in addresses.py, produce.py and fetch.py find the addresses. This module replaces them and knows
no API.
"""

from collections.abc import Callable, Iterator

from pidgate.protocol.frames import Buffer, Reader, Translate, encode_string, framed, size_prefix, uvarint

NO_NODE = -1
"""Kafka's id for no node; its address is meaningless and stays unchanged."""


class Splice:
    """Replacements in buf[start:end], in ascending order."""

    __slots__ = ("_buf", "_end", "_kept", "_parts")

    def __init__(self, buf: Buffer, start: int, end: int) -> None:
        self._buf = memoryview(buf)
        self._end = end
        self._kept = start
        self._parts: list[Buffer] = []

    def replace(self, at: int, to: int, new: bytes) -> None:
        """Replace buf[at:to] with `new`."""
        self._parts += (self._buf[self._kept : at], new)
        self._kept = to

    @property
    def changed(self) -> bool:
        """Whether anything was replaced."""
        return bool(self._parts)

    def parts(self) -> list[Buffer]:
        """Return the new contents as slices of the buffer and replacements."""
        return [*self._parts, self._buf[self._kept : self._end]]

    def framed(self) -> bytes:
        """Return the new contents as a frame with its size prefix."""
        return framed(*self.parts())


def translate_endpoint(reader: Reader, splice: Splice, translate: Translate) -> None:
    """Read (node id, host, port) and replace host and port by the translated address.

    An empty host or NO_NODE is not translated.
    """
    node_id = reader.i32()
    at = reader.pos
    host = reader.string()
    port = reader.i32()
    if node_id != NO_NODE and host:
        new_host, new_port = translate(node_id, host, port)
        new = encode_string(new_host, flexible=reader.flexible) + size_prefix(new_port)
        splice.replace(at, reader.pos, new)


def translate_node_endpoints(reader: Reader, splice: Splice, translate: Translate) -> Iterator[None]:
    """Walk an array of NodeEndpoint (KIP-951): node id, host, port, rack, tags; yields after each."""
    for _ in range(reader.count(11)):
        translate_endpoint(reader, splice, translate)
        reader.skip_string()
        reader.skip_tags()
        yield


def splice_tag(
    reader: Reader, splice: Splice, tag: int, walk: Callable[[Reader, Splice], Iterator[None]]
) -> Iterator[None]:
    """Walk the tag buffer at the reader; `walk` may replace parts of the content of `tag`."""
    for found, at, content, end in reader.tags():
        if found != tag:
            continue
        inner = Reader(reader.buf, content, end, flexible=True)
        change = Splice(reader.buf, content, end)
        yield from walk(inner, change)
        inner.finish()
        if change.changed:
            new = b"".join(change.parts())
            splice.replace(at, end, uvarint(len(new)) + new)
