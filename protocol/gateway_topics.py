"""Topics that no client may see or touch: how they disappear from lists, and how a question about them is disguised.

A client that may write what the gateways read could tell them anything. So to clients an own topic is one that they
are not authorised for: left out where all topics are listed, TOPIC_AUTHORIZATION_FAILED (29) where it is asked for.

A request for Metadata or DescribeTopicPartitions may ask for others as well, and may make a broker create what it
names. It is forwarded with a name that no topic can have, of the same length, and the answer's entry for that
name becomes the refusal. Everything else in request and answer stays byte for byte.

    Metadata                 0-13   entries cut out, or refused by name or id
    DescribeTopicPartitions  0      the same; a cursor may name the topic, which shows nothing of it
    ConsumerGroupHeartbeat   0-1    a broker that resolves a pattern (KIP-848) assigns the topic: cut out

Requests that name it in any other API are refused: topic_refusals.py.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pidgate.protocol.errors import ErrorCode, MalformedFrame
from pidgate.protocol.frames import Buffer, Reader, read_uvarint, size_prefix, uvarint
from pidgate.protocol.headers import is_flexible, peek_request
from pidgate.protocol.metadata import METADATA, to_topics
from pidgate.protocol.splice import Splice

CONSUMER_GROUP_HEARTBEAT: Final = 68
DESCRIBE_TOPIC_PARTITIONS: Final = 75

DISGUISED: Final = frozenset({METADATA, DESCRIBE_TOPIC_PARTITIONS})
"""API keys of requests that are forwarded in disguise instead of being refused."""

_FIRST_METADATA_WITH_IDS: Final = 10
_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED.to_bytes(2, "big")
_NO_TOPIC_CHARACTER: Final = b"!"
_TOPIC_CHARACTERS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LARGEST_CERTAIN_ERROR: Final = 45
_MOST_IDS: Final = 64
_MOST_PLACES: Final = 1_000
"""Whoever says a name more often than this in one request means it: looking at each place would stall everybody."""


class OwnTopicSet:
    """Names and ids of the topics, in the forms in which frames hold them. Ids are learnt; names are given."""

    __slots__ = ("_ids", "disguised_ids", "disguised_names", "names", "needles", "produced")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(name.encode() for name in names)
        self._ids: dict[bytes, None] = {}
        self.disguised_names = {_NO_TOPIC_CHARACTER + name[1:]: name for name in self.names}
        self.disguised_ids: dict[bytes, bytes] = {}
        self.produced = set(self.names)
        """What a Produce batch may not be for, in the form of produce.ProducerBatch. Grows as ids are learnt:
        whoever keeps it keeps this very set."""
        self.needles: tuple[bytes, ...] = ()
        """Names and ids: a frame in which none of them stands as bytes names none of the topics."""
        self._collect()

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def ids(self) -> Iterable[bytes]:
        """Known topic ids, 16 bytes each."""
        return self._ids.keys()

    def learn_id(self, topic_id: bytes) -> None:
        """One of the topics has this id (16 bytes). The oldest is forgotten beyond a bound: a topic that is
        deleted and created again has another one."""
        if topic_id in self._ids or not any(topic_id):
            return
        self._ids[bytes(topic_id)] = None
        if len(self._ids) > _MOST_IDS:
            gone = next(iter(self._ids))
            del self._ids[gone]
            self.produced.discard(b"\x00" + gone)
        self.produced.add(b"\x00" + topic_id)
        self._collect()

    def _collect(self) -> None:
        self.disguised_ids = {_disguised_id(topic_id): topic_id for topic_id in self._ids}
        self.needles = (*self.names, *self._ids)

    def is_held(self, buf: bytes | bytearray, start: int, end: int, *, flexible: bool) -> bool:
        """Whether a string that is exactly a name, or an id, stands in buf[start:end]: the length before the name
        must be the name's, in any form that a broker reads in this version. It may still be something else's.
        """
        if any(buf.find(topic_id, start, end) >= 0 for topic_id in self._ids):
            return True
        places = ((name, at) for name in self.names for at in _places(buf, name, start, end))
        return any(
            looked_at == _MOST_PLACES or _has_length(buf, start, at, len(name), flexible=flexible)
            for looked_at, (name, at) in enumerate(places)
        )


def _disguised_id(topic_id: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in topic_id)


def _places(buf: bytes | bytearray, needle: bytes, start: int, end: int) -> Iterator[int]:
    at = buf.find(needle, start, end)
    while at >= 0:
        yield at
        at = buf.find(needle, at + 1, end)


def _has_length(buf: Buffer, start: int, at: int, length: int, *, flexible: bool) -> bool:
    """Whether the bytes before `at` are the length of a string of so many bytes: an int16, or a varint of any
    size, as a broker does not insist on the shortest form (KIP-482)."""
    if not flexible:
        return at - 2 >= start and buf[at - 2] << 8 | buf[at - 1] == length
    for begin in range(at - 1, max(start, at - 5) - 1, -1):
        try:
            if read_uvarint(buf, begin) == (length + 1, at):
                return True
        except MalformedFrame:
            continue
    return False


def disguise(buf: Buffer, start: int, end: int, own: OwnTopicSet) -> bytes | None:
    """The framed request to send in place of buf[start:end], one of DISGUISED; None if it asks for no own topic.

    Raises MalformedFrame. The cost grows with the topics in it: ask `is_held` first.
    """
    head = peek_request(buf, start, end)
    request = Reader(buf, head.body, end, flexible=is_flexible(head.api_key, head.api_version))
    has_ids = head.api_key == METADATA and head.api_version >= _FIRST_METADATA_WITH_IDS
    change = Splice(buf, start, end)
    for _ in range(request.count(2, nullable=True)):
        if has_ids:
            topic_id = request.take(16)
            if topic_id in own.ids:
                change.replace(request.pos - 16, request.pos, _disguised_id(topic_id))
        name = request.raw_string()
        if name in own.names:
            change.replace(request.pos - len(name), request.pos, _NO_TOPIC_CHARACTER + name[1:])
        request.skip_tags()
    return change.framed() if change.changed else None


def conceal(
    api_key: int,
    api_version: int,
    buf: Buffer,
    start: int,
    end: int,
    own: OwnTopicSet,
    *,
    was_disguised: bool,
) -> bytes | None:
    """The framed answer to give in place of buf[start:end] (its header included); None: as it came.

    Learns the topics' ids on the way. For METADATA, DESCRIBE_TOPIC_PARTITIONS and CONSUMER_GROUP_HEARTBEAT.
    `was_disguised`: its request was. Searches before it walks, and then walks an own topic's entry only: a list of
    ten thousand topics costs a search and a copy. Raises MalformedFrame.
    """
    held = bytes(buf) if isinstance(buf, memoryview) else buf
    if api_key == CONSUMER_GROUP_HEARTBEAT:
        is_there = any(held.find(topic_id, start, end) >= 0 for topic_id in own.ids)
        return _without_assignment(held, start, end, own) if is_there else None
    if not was_disguised and all(held.find(name, start, end) < 0 for name in own.names):
        return None
    answer = Reader(held, start, end)
    if api_key == METADATA:
        to_topics(answer, api_version)
    else:
        answer.flexible = True
        answer.skip(4)
        answer.skip_tags()
        answer.skip(4)
    return _conceal_topics(answer, api_key, api_version, own, start, was_disguised=was_disguised)


class _Entry(NamedTuple):
    start: int
    end: int
    instead: bytes | None
    """The beginning of the entry, of the same length as the old one; None: the whole entry goes."""


class _Topics:
    """The topics of an answer, read from the middle: an entry is found by what it names, then walked."""

    def __init__(self, answer: Reader, api_key: int, api_version: int) -> None:
        """The reader stands behind the number of topics."""
        self._buf, self._body, self._end = bytes(answer.buf), answer.pos, answer.end
        self._flexible = answer.flexible
        self._of_metadata = api_key == METADATA
        self._version = api_version
        self.has_ids = not self._of_metadata or api_version >= _FIRST_METADATA_WITH_IDS

    def named(self, name: bytes) -> Iterator[tuple[int, int, int]]:
        """(start of the entry, where the name stands, end of the entry).

        Before a name stands its length. That byte may also be a character of a longer name, when this one has
        44 characters or more; then the byte before it is that longer name's length, where an error code
        would end: none of those that a broker puts here is as large.
        """
        length = len(name)
        prefix = uvarint(length + 1) if self._flexible else length.to_bytes(2, "big")
        is_certain = not self._flexible or prefix[0] not in _TOPIC_CHARACTERS
        for at in _places(self._buf, name, self._body, self._end):
            start = at - len(prefix) - 2
            if start < self._body or self._buf[start + 2 : at] != prefix:
                continue
            error_code = int.from_bytes(self._buf[start : start + 2], "big", signed=True)
            if is_certain or error_code <= _LARGEST_CERTAIN_ERROR:
                end = self._end_of_entry(at + length + (16 if self.has_ids else 0))
                if end is not None:
                    yield start, at, end

    def nameless(self, topic_id: bytes) -> Iterator[tuple[int, int, int]]:
        """(start of the entry, where the id stands, end of the entry): what was asked by id and is not known."""
        for at in _places(self._buf, topic_id, self._body, self._end):
            if at - 3 >= self._body and self._buf[at - 1] == 0:
                end = self._end_of_entry(at + 16)
                if end is not None:
                    yield at - 3, at, end

    def _end_of_entry(self, at: int) -> int | None:
        """From behind the name and the id; None if that is no entry."""
        rest = Reader(self._buf, at, self._end, flexible=self._flexible)
        try:
            self._skip_rest(rest)
        except MalformedFrame:
            return None
        return rest.pos

    def _skip_rest(self, rest: Reader) -> None:
        of_metadata, version = self._of_metadata, self._version
        if not of_metadata or version >= 1:
            rest.skip(1)
        # Error code, index, leader, leader epoch; then replicas, those in sync and others.
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


def _listed(topics: _Topics, buf: bytes | bytearray, own: OwnTopicSet) -> Iterator[_Entry]:
    for name in own.names:
        for start, at, end in topics.named(name):
            if topics.has_ids:
                own.learn_id(bytes(buf[at + len(name) : at + len(name) + 16]))
            yield _Entry(start, end, None)


def _asked_for(topics: _Topics, buf: bytes | bytearray, own: OwnTopicSet) -> Iterator[_Entry]:
    for disguised, name in own.disguised_names.items():
        for start, at, end in topics.named(disguised):
            yield _Entry(start, end, _REFUSED + bytes(buf[start + 2 : at]) + name)
    if topics.has_ids:
        for disguised, topic_id in own.disguised_ids.items():
            for start, at, end in topics.nameless(disguised):
                yield _Entry(start, end, _REFUSED + bytes(buf[start + 2 : at]) + topic_id)


def _conceal_topics(
    answer: Reader, api_key: int, api_version: int, own: OwnTopicSet, start: int, *, was_disguised: bool
) -> bytes | None:
    """The reader stands at the number of topics."""
    buf, count_at = bytes(answer.buf), answer.pos
    count = answer.count(7)
    body = answer.pos
    topics = _Topics(answer, api_key, api_version)
    entries = list(_listed(topics, buf, own))
    if was_disguised:
        entries += _asked_for(topics, buf, own)
    if not entries:
        return None
    change = Splice(buf, start, answer.end)
    left = count - sum(entry.instead is None for entry in entries)
    change.replace(count_at, body, uvarint(left + 1) if answer.flexible else size_prefix(left))
    for entry in sorted(entries, key=lambda entry: entry.start):
        if entry.instead is None:
            change.replace(entry.start, entry.end, b"")
        else:
            change.replace(entry.start, entry.start + len(entry.instead), entry.instead)
    return change.framed()


def _without_assignment(buf: bytes | bytearray, start: int, end: int, own: OwnTopicSet) -> bytes | None:
    """A ConsumerGroupHeartbeat answer whose assignment holds no partition of an own topic.

    The member never reports them as its own, and is not asked to: it may go on without.
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
    count_at = answer.pos
    count = answer.count(18)
    body = answer.pos
    gone: list[tuple[int, int]] = []
    for _ in range(count):
        at = answer.pos
        topic_id = answer.take(16)
        answer.skip(4 * answer.count(4))
        answer.skip_tags()
        if topic_id in own.ids:
            gone.append((at, answer.pos))
    if not gone:
        return None
    change = Splice(buf, start, end)
    change.replace(count_at, body, uvarint(count - len(gone) + 1))
    for at, to in gone:
        change.replace(at, to, b"")
    return change.framed()
