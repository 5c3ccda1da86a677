"""Metadata responses (api key 3, versions 0-13): translate broker addresses, read topic ids. PURE.

The brokers come first in the body, so only the beginning is rewritten and the cost does not depend on the
number of topics.

Versions: 1 adds the rack, 2 the cluster id, 3 throttle_time_ms, 5 offline replicas, 7 leader epochs, 8
authorized operations, 9 is flexible (KIP-482), 10 adds topic ids (KIP-516), 12 makes a topic's name nullable,
13 adds an error code at the end.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple

from pidgate.protocol.errors import FrameTooLarge, MalformedFrame, UnsupportedVersion
from pidgate.protocol.frames import Buffer, Reader, Translate, read_uvarint, skip_tags
from pidgate.protocol.splice import Splice, translate_endpoint
from pidgate.protocol.work import MOST_BROKERS, at_once

METADATA = 3
MAX_VERSION = 13
FIRST_WITH_TOPIC_IDS = 10

_FIRST_FLEXIBLE = 9
_NO_TOPIC = bytes(16)


def splice(buf: Buffer, start: int, end: int, version: int, translate: Translate) -> bytes:
    """Return the Metadata response buf[start:end] (header included), framed, with translated brokers.

    Raises MalformedFrame, UnsupportedVersion, or FrameTooLarge above MOST_BROKERS.
    """
    return at_once(splicing(buf, start, end, version, translate))


def splicing(
    buf: Buffer, start: int, end: int, version: int, translate: Translate
) -> Generator[None, None, bytes]:
    """Do the same as `splice` in steps."""
    answer = Reader(buf, start, end)
    change = Splice(buf, start, end)
    yield from _translate_brokers(answer, change, version, translate)
    return change.framed()


def _translate_brokers(answer: Reader, splice: Splice, version: int, translate: Translate) -> Iterator[None]:
    for _ in range(_to_brokers(answer, version)):
        translate_endpoint(answer, splice, translate)
        if version >= 1:
            answer.skip_string()
        answer.skip_tags()
        yield


def _to_brokers(answer: Reader, version: int) -> int:
    """Move a reader from the start of a response to the first broker; return the number of brokers."""
    if not 0 <= version <= MAX_VERSION:
        raise UnsupportedVersion(METADATA, version)
    answer.skip(4)
    answer.flexible = version >= _FIRST_FLEXIBLE
    answer.skip_tags()
    if version >= 3:
        answer.skip(4)
    count = answer.count(10)
    if count > MOST_BROKERS:
        raise FrameTooLarge(f"a Metadata response with {count} brokers, the limit is {MOST_BROKERS}")
    return count


def to_topics(answer: Reader, version: int) -> None:
    """Move a reader from the start of a response (header included) to the topic count.

    Raises as `splice`.
    """
    for _ in range(_to_brokers(answer, version)):
        answer.skip(4)
        answer.skip_string()
        answer.skip(4)
        if version >= 1:
            answer.skip_string()
        answer.skip_tags()
    if version >= 2:
        answer.skip_string()
    if version >= 1:
        answer.skip(4)


def topic_ids(buf: Buffer, start: int, end: int, version: int) -> Iterator[tuple[str, bytes]]:
    """Yield (name, 16 byte id) of each topic in the Metadata response buf[start:end] that has both.

    A generator, so that a large response can be spread over turns of the event loop; buf must not change
    until it ends. Yields nothing below version 10. Raises MalformedFrame or UnsupportedVersion on the way.
    """
    answer = Reader(buf, start, end)
    if version < FIRST_WITH_TOPIC_IDS:
        _to_brokers(answer, version)
        return
    to_topics(answer, version)
    for _ in range(answer.count(26)):
        answer.skip(2)
        name = answer.nullable_string()
        topic_id = answer.read_bytes(16)
        answer.skip(1)
        partitions = answer.count(18)
        answer.pos = _skip_partitions(buf, answer.pos, end, partitions)
        answer.skip(4)
        answer.skip_tags()
        if name is not None and topic_id != _NO_TOPIC:
            yield name, topic_id


class TopicRights(NamedTuple):
    """The rights of a login on a topic. `operations`: Kafka's numbers of AclOperation, empty unless asked for."""

    name: str
    error_code: int
    operations: frozenset[int]


def topic_rights(buf: Buffer, start: int, end: int, version: int) -> Iterator[TopicRights]:
    """Yield each topic of a Metadata response (version 12) with the rights on it. Raises as `topic_ids`."""
    answer = Reader(buf, start, end)
    to_topics(answer, version)
    for _ in range(answer.count(26)):
        error_code = answer.i16()
        name = answer.nullable_string()
        answer.skip(16 + 1)
        partitions = answer.count(18)
        answer.pos = _skip_partitions(buf, answer.pos, end, partitions)
        bits = answer.i32()
        answer.skip_tags()
        operations = frozenset(number for number in range(31) if bits >= 0 and bits & 1 << number)
        yield TopicRights(name or "", error_code, operations)


def _skip_partitions(buf: Buffer, p: int, end: int, partitions: int) -> int:
    """Return the position after this many partitions of a flexible version. There may be 100,000 of them."""
    try:
        for _ in range(partitions):
            p += 14  # error code, index, leader, leader epoch
            for _ in range(3):  # replicas, in sync replicas, offline replicas
                count = buf[p]
                p += 1
                if count >= 0x80:
                    count, p = read_uvarint(buf, p - 1)
                p += 4 * count - 4 if count else 0
            p = p + 1 if buf[p] == 0 else skip_tags(buf, p, end)
    except IndexError as error:
        raise MalformedFrame("a partition beyond the end of the frame") from error
    if p > end:
        raise MalformedFrame("a partition beyond the end of the frame")
    return p
