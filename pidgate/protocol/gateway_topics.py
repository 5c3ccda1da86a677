"""Gateway topics in Metadata and listings: removed from lists, refused if requested by name.

Clients see a gateway topic as one without authorization: it is missing from lists of all topics, and requests
for it return TOPIC_AUTHORIZATION_FAILED (29). A Metadata request also asks for brokers and other topics, and
may create topics. Gateway topics are therefore cut from the request and refused in its response. All other
bytes are unchanged.

    Metadata                 0-13   removed from lists of all topics; refused by name or id
    DescribeTopicPartitions  0      removed from lists of all topics
    ConsumerGroupHeartbeat   0-1    removed from assignments (brokers resolve patterns, KIP-848)

Requests of other APIs that contain a gateway topic are refused as a whole: topic_refusals.py.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from pidgate.protocol.errors import ErrorCode, MalformedFrame
from pidgate.protocol.frames import Buffer, Reader, read_uvarint, size_prefix, uvarint
from pidgate.protocol.headers import RequestHead, is_flexible
from pidgate.protocol.metadata import FIRST_WITH_TOPIC_IDS, METADATA, to_topics
from pidgate.protocol.splice import Splice
from pidgate.protocol.work import BYTES_PER_STEP, Steps

CONSUMER_GROUP_HEARTBEAT: Final = 68
DESCRIBE_TOPIC_PARTITIONS: Final = 75

_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED.to_bytes(2, "big")
_OPERATIONS_UNKNOWN: Final = (1 << 31).to_bytes(4, "big")
_TOPIC_CHARACTERS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LARGEST_CERTAIN_ERROR: Final = 45
_MOST_IDS: Final = 64
_MOST_PLACES: Final = 1_000
"""Most occurrences of a name that are examined.

Checking more would block all connections, so such a request is treated as a match.
"""


class GatewayTopicSet:
    """Names and ids of the gateway topics in wire format. Names are given, ids are learnt."""

    __slots__ = ("_ids", "names", "needles", "produced")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(name.encode() for name in names)
        self._ids: dict[bytes, None] = {}
        self.produced = set(self.names)
        """Topics refused in Produce, in the form of produce.ProducerBatch.

        Users keep this set, which grows as ids are learnt.
        """
        self.needles: tuple[bytes, ...] = tuple(self.names)
        """Names and ids. A frame that contains none of these byte strings refers to no gateway topic."""

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def ids(self) -> Iterable[bytes]:
        """Known topic ids, 16 bytes each."""
        return self._ids.keys()

    def learn_id(self, topic_id: bytes) -> bool:
        """Add a topic id (16 bytes). Ids beyond a bound replace the oldest: a recreated topic has a new id.

        Returns whether it is a new one.
        """
        if topic_id in self._ids or not any(topic_id):
            return False
        self._ids[bytes(topic_id)] = None
        if len(self._ids) > _MOST_IDS:
            gone = next(iter(self._ids))
            del self._ids[gone]
            self.produced.discard(b"\x00" + gone)
        self.produced.add(b"\x00" + topic_id)
        self.needles = (*self.names, *self._ids)
        return True

    def is_named_in(self, buf: bytes | bytearray, start: int, end: int, *, flexible: bool) -> bool:
        """Return whether buf[start:end] contains a string equal to a name, or an id.

        The preceding length must match, in any encoding that a broker accepts in this version. The match may
        still belong to a different field.
        """
        if any(buf.find(topic_id, start, end) >= 0 for topic_id in self._ids):
            return True
        places = ((name, at) for name in self.names for at in _places(buf, name, start, end))
        return any(
            looked_at == _MOST_PLACES or _has_length(buf, start, at, len(name), flexible=flexible)
            for looked_at, (name, at) in enumerate(places)
        )


def _places(buf: bytes | bytearray, needle: bytes, start: int, end: int) -> Iterator[int]:
    at = buf.find(needle, start, end)
    while at >= 0:
        yield at
        at = buf.find(needle, at + 1, end)


def _has_length(buf: Buffer, start: int, at: int, length: int, *, flexible: bool) -> bool:
    """Return whether the bytes before `at` encode a string length: int16, or a varint of any size.

    Brokers do not insist on the shortest varint (KIP-482).
    """
    if not flexible:
        return at - 2 >= start and buf[at - 2] << 8 | buf[at - 1] == length
    for begin in range(at - 1, max(start, at - 5) - 1, -1):
        try:
            if read_uvarint(buf, begin) == (length + 1, at):
                return True
        except MalformedFrame:
            continue
    return False


def _array_length(count: int, *, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else size_prefix(count)


class _Array(NamedTuple):
    """An array in a frame: position of its length, position of its first element, element count."""

    at: int
    body: int
    length: int


def _cut(reader: Reader, start: int, array: _Array, gone: list[tuple[int, int]]) -> bytes:
    """Return the framed contents from `start` without the elements `gone` (from, to).

    Raises MalformedFrame if the ranges overlap or are more than the array has elements.
    """
    gone = sorted(gone)
    if len(gone) > array.length or any(to > at for (_, to), (at, _) in pairwise(gone)):
        raise MalformedFrame(f"{len(gone)} entries of gateway topics in an array of {array.length}")
    change = Splice(reader.buf, start, reader.end)
    length = _array_length(array.length - len(gone), flexible=reader.flexible)
    change.replace(array.at, array.body, length)
    for at, to in gone:
        change.replace(at, to, b"")
    return change.framed()


# Metadata requests that contain a gateway topic


class MetadataCut(NamedTuple):
    """A Metadata request without its gateway topics."""

    request: bytes
    """The frame to forward instead."""
    refusals: tuple[bytes, ...]
    """Topics to add to the response: see `with_refusals`."""
    is_empty: bool
    """No topics are left. In version 0 an empty list requests all topics."""


def cut_metadata_request(buf: Buffer, head: RequestHead, topics: GatewayTopicSet) -> MetadataCut | None:
    """Cut `topics` from the Metadata request in `buf`; None if it contains none of them.

    The cost grows with the number of topics: call `is_named_in` first. Raises MalformedFrame.
    """
    version = head.api_version
    request = Reader(buf, head.body, head.end, flexible=is_flexible(METADATA, version))
    at, count = request.pos, request.count(2, nullable=True)
    array = _Array(at, request.pos, count)
    gone: list[tuple[int, int]] = []
    refusals: list[bytes] = []
    for _ in range(count):
        at = request.pos
        topic_id = request.read_bytes(16) if version >= FIRST_WITH_TOPIC_IDS else b""
        name_at = request.pos
        name = request.raw_string()
        name_field = bytes(buf[name_at : request.pos])
        request.skip_tags()
        if name in topics.names or topic_id in topics.ids:
            gone.append((at, request.pos))
            refusals.append(_refusal(version, name_field, topic_id, flexible=request.flexible))
    if not gone:
        return None
    return MetadataCut(_cut(request, head.start, array, gone), tuple(refusals), len(gone) == count)


def _refusal(version: int, name_field: bytes, topic_id: bytes, *, flexible: bool) -> bytes:
    """Return a Metadata response topic with error 29, encoded as brokers do."""
    return b"".join(
        (
            _REFUSED,
            name_field,
            topic_id,
            b"\x00" if version >= 1 else b"",  # is_internal
            _array_length(0, flexible=flexible),  # partitions
            _OPERATIONS_UNKNOWN if version >= 8 else b"",
            b"\x00" if flexible else b"",
        )
    )


def with_refusals(buf: Buffer, start: int, end: int, version: int, refusals: tuple[bytes, ...]) -> bytes:
    """Return the Metadata response buf[start:end] (header included), framed, with these topics prepended.

    Raises MalformedFrame.
    """
    answer = Reader(buf, start, end)
    to_topics(answer, version)
    at, count = answer.pos, answer.count(7)
    change = Splice(buf, start, end)
    length = _array_length(count + len(refusals), flexible=answer.flexible)
    change.replace(at, answer.pos, length + b"".join(refusals))
    return change.framed()


# Responses that list topics


def filtering(
    api_key: int, api_version: int, buf: Buffer, start: int, end: int, topics: GatewayTopicSet
) -> Steps:
    """Return the framed response that replaces buf[start:end] (header included), in steps; None if unchanged.

    For METADATA, DESCRIBE_TOPIC_PARTITIONS and CONSUMER_GROUP_HEARTBEAT. Learns topic ids as a side effect.
    Searches first and walks only the entries of gateway topics, so a list of ten thousand topics costs one
    search and one copy. Raises MalformedFrame.
    """
    held = bytes(buf) if isinstance(buf, memoryview) else buf
    if api_key == CONSUMER_GROUP_HEARTBEAT:
        places = yield from _search(held, tuple(topics.ids), start, end)
        return (yield from _without_assignment(held, start, end, topics)) if places else None
    places = yield from _search(held, tuple(topics.names), start, end)
    if not places:
        return None
    answer = Reader(held, start, end)
    if api_key == METADATA:
        to_topics(answer, api_version)
    else:
        answer.flexible = True
        answer.skip(4)
        answer.skip_tags()
        answer.skip(4)
    at, count = answer.pos, answer.count(7)
    array = _Array(at, answer.pos, count)
    gone: list[tuple[int, int]] = []
    for name, at in places:
        entry = _entry(held, answer, api_key, api_version, name, at) if at >= answer.pos else None
        if entry is not None:
            if api_key != METADATA or api_version >= FIRST_WITH_TOPIC_IDS:
                topics.learn_id(bytes(held[at + len(name) : at + len(name) + 16]))
            gone.append(entry)
        yield
    return _cut(answer, start, array, gone) if gone else None


def _search(
    buf: bytes | bytearray, needles: Iterable[bytes], start: int, end: int
) -> Generator[None, None, list[tuple[bytes, int]]]:
    """Find every (needle, position) in buf[start:end]."""
    found: list[tuple[bytes, int]] = []
    for needle in needles:
        for begin in range(start, end, BYTES_PER_STEP):
            places = _places(buf, needle, begin, min(begin + BYTES_PER_STEP + len(needle) - 1, end))
            found += [(needle, at) for at in places]
            yield
    return found


def _entry(
    buf: bytes | bytearray, answer: Reader, api_key: int, version: int, name: bytes, at: int
) -> tuple[int, int] | None:
    """Return (start, end) of the topic whose name is at `at`; None if it is not a topic's name.

    The reader is at the first topic. The byte before a name is its length. It may also be a character of a
    longer name if this name has 44 characters or more. The byte before it is then the longer name's length,
    in the place of an error code's last byte, and no error code that a broker sends here is that large.
    """
    prefix = uvarint(len(name) + 1) if answer.flexible else len(name).to_bytes(2, "big")
    start = at - len(prefix) - 2
    if start < answer.pos or buf[start + 2 : at] != prefix:
        return None
    is_certain = not answer.flexible or prefix[0] not in _TOPIC_CHARACTERS
    error_code = int.from_bytes(buf[start : start + 2], "big", signed=True)
    if not is_certain and error_code > _LARGEST_CERTAIN_ERROR:
        return None
    rest = Reader(buf, at + len(name), answer.end, flexible=answer.flexible)
    try:
        _skip_behind_name(rest, api_key, version)
    except MalformedFrame:
        return None
    return start, rest.pos


def _skip_behind_name(rest: Reader, api_key: int, version: int) -> None:
    of_metadata = api_key == METADATA
    if not of_metadata or version >= FIRST_WITH_TOPIC_IDS:
        rest.skip(16)
    if not of_metadata or version >= 1:
        rest.skip(1)
    # Error code, index, leader, leader epoch; then replicas, in-sync replicas and others.
    fixed = 14 if not of_metadata or version >= 7 else 10
    arrays = (3 if version >= 5 else 2) if of_metadata else 5
    for _ in range(rest.count(fixed)):
        rest.skip(fixed)
        for _ in range(arrays):
            rest.skip(4 * rest.count(4, nullable=True))
        rest.skip_tags()
    if not of_metadata or version >= 8:
        rest.skip(4)
    rest.skip_tags()


def _without_assignment(buf: bytes | bytearray, start: int, end: int, topics: GatewayTopicSet) -> Steps:
    """Return a ConsumerGroupHeartbeat response without partitions of gateway topics.

    The member never reports these partitions as its own, and the protocol does not require it to.
    """
    answer = Reader(buf, start, end, flexible=True)
    answer.skip(4)
    answer.skip_tags()
    answer.skip(6)  # throttle_time_ms, error code
    answer.skip_string()
    answer.skip_string()
    answer.skip(8)  # member epoch, heartbeat interval
    if answer.i8() < 0:
        return None
    at, count = answer.pos, answer.count(18)
    array = _Array(at, answer.pos, count)
    gone: list[tuple[int, int]] = []
    for _ in range(count):
        at = answer.pos
        topic_id = answer.read_bytes(16)
        answer.skip(4 * answer.count(4))
        answer.skip_tags()
        if topic_id in topics.ids:
            gone.append((at, answer.pos))
        yield
    return _cut(answer, start, array, gone) if gone else None
