"""Produce requests (api key 0, versions 0-13): producer ids and the transactional id. PURE.

`walk` runs for every Produce request and is written for speed: flat, without copying records, every length
checked before use. A broker either reads an accepted request in the same way or rejects it.

Versions: 0-2 may carry magic 2 batches (Kafka 3.9 accepts them), 3 adds the transactional id, 8 the error
message of the response, 9 is flexible (KIP-482), 10 adds the current leader and node endpoints to the
response (KIP-951), 13 identifies topics by id (KIP-516).
"""

from collections.abc import Collection
from struct import Struct
from struct import error as struct_error
from typing import Final

from pidgate.protocol.errors import FrameTooLarge, MalformedFrame, UnsupportedVersion
from pidgate.protocol.frames import Buffer, Reader, read_uvarint, skip_tags
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.work import (
    MOST_OLD_MESSAGES,
    MOST_PARTITIONS,
    MOST_TOPIC_NAME_BYTES,
    TAGS_BYTES_FOR_ONE,
)

PRODUCE: Final = 0
MAX_VERSION: Final = 13

ProducerBatch = tuple[int, int, int, bytes, int]
"""(producer id, producer epoch, base sequence, topic, partition).

The topic is its name in UTF-8, or from version 13 a zero byte and the 16 byte topic id. Names contain no zero
byte.
"""

Walked = tuple[int, bool, list[ProducerBatch], list[int], int]
"""Result of walk_counting."""

NONE_FORBIDDEN: Final[frozenset[bytes]] = frozenset()

_FIRST_WITH_TRANSACTIONS: Final = 3
FIRST_FLEXIBLE: Final = 9
FIRST_TOPIC_ID: Final = 13
BATCH_HEADER_BYTES: Final = 61  # magic 2 batch (KIP-98) up to its first record
LENGTH_OVERHEAD: Final = 12  # base offset and batch length, not included in the batch length
_LEAST_OLD_ENTRY: Final = 26  # magic 0 message without key and value; magic 1 has 8 bytes more
TRANSACTIONAL: Final = 0x10  # attribute bit of a batch

_I16: Final = Struct(">h").unpack_from
unpack_i32: Final = Struct(">i").unpack_from
_ACKS_TIMEOUT_COUNT: Final = Struct(">h4xi").unpack_from
_INDEX_LENGTH: Final = Struct(">ii").unpack_from
# Batch length, magic, attributes, producer id, producer epoch, base sequence, record count.
unpack_batch: Final = Struct(">8xi4xb4xh20xqhii").unpack_from
_LENGTH_MAGIC: Final = Struct(">8xi4xb").unpack_from


class ForbiddenTopic(Exception):
    """A valid Produce request is for a topic that clients must not write to through the gateway."""

    def __init__(self, acks: int) -> None:
        super().__init__("a Produce request for a forbidden topic")
        self.acks = acks


def walk(buf: Buffer, head: RequestHead) -> tuple[int, bool, list[ProducerBatch]]:
    """Return (acks, transactional, batches) of the Produce request in `buf`.

    Only batches with a producer id are listed (magic 2, id 0 or above), in request order. `transactional` is
    true if the request has a transactional id and all these batches are marked transactional; brokers treat a
    request with only the transactional id as idempotent. Raises MalformedFrame, UnsupportedVersion, or
    FrameTooLarge above the limits in work.py.
    """
    acks, transactional, batches, *_ = walk_counting(buf, head)
    return acks, transactional, batches


def walk_counting(buf: Buffer, head: RequestHead, forbidden: Collection[bytes] = NONE_FORBIDDEN) -> Walked:
    """Return the result of `walk`, each batch's record count, and the number of places walked.

    Record counts are the header's claim and for statistics only. Places are topics, partitions and old
    messages. Raises MalformedFrame, UnsupportedVersion, FrameTooLarge, and ForbiddenTopic at the first topic
    in `forbidden`.
    """
    api_key, version, body, end = head.api_key, head.api_version, head.body, head.end
    if api_key or not 0 <= version <= MAX_VERSION:
        raise UnsupportedVersion(api_key, version)
    try:
        if version >= FIRST_FLEXIBLE:
            return _walk_flexible(buf, body, end, version, forbidden)
        return _walk_classic(buf, body, end, version, forbidden)
    except (struct_error, IndexError) as error:
        raise MalformedFrame("a Produce request that ends too early") from error


def _walk_classic(  # noqa: C901 - flat for the same reason as _walk_flexible
    buf: Buffer, p: int, end: int, version: int, forbidden: Collection[bytes]
) -> Walked:
    transactional = False
    if version >= 3:
        (length,) = _I16(buf, p)
        p += 2
        if length >= 0:
            transactional = True
            p += length
        elif length != -1:
            raise MalformedFrame(f"a transactional id of {length} bytes")
    acks, topics = _ACKS_TIMEOUT_COUNT(buf, p)
    p += 10
    if not 0 <= topics * 6 <= end - p:
        raise MalformedFrame(f"{topics} topics in {end - p} bytes")
    batches: list[ProducerBatch] = []
    counts: list[int] = []
    total = topics
    left = MOST_OLD_MESSAGES
    for _ in range(topics):
        (length,) = _I16(buf, p)
        q = p + 2 + length
        if not 0 <= length <= MOST_TOPIC_NAME_BYTES or q > end:
            raise MalformedFrame(f"a topic name of {length} bytes")
        topic = bytes(buf[p + 2 : q])
        if topic in forbidden:
            raise ForbiddenTopic(acks)
        (partitions,) = unpack_i32(buf, q)
        p = q + 4
        total += partitions
        if not 0 <= partitions * 8 <= end - p or total > MOST_PARTITIONS:
            raise _too_many(partitions, total, end - p)
        for _ in range(partitions):
            index, length = _INDEX_LENGTH(buf, p)
            p += 8
            if length <= 0:
                if length < -1:
                    raise MalformedFrame(f"records of {length} bytes")
                continue
            q = p + length
            if q > end:
                raise MalformedFrame(f"records of {length} bytes, {end - p} left")
            if length < BATCH_HEADER_BYTES:
                left, marked = _walk_records(buf, p, q, topic, index, batches, counts, left)
                transactional &= marked
            else:
                batch_length, magic, attributes, producer_id, epoch, sequence, count = unpack_batch(buf, p)
                if magic != 2 or batch_length != length - LENGTH_OVERHEAD:
                    left, marked = _walk_records(buf, p, q, topic, index, batches, counts, left)
                    transactional &= marked
                elif producer_id >= 0:
                    batches.append((producer_id, epoch, sequence, topic, index))
                    counts.append(count)
                    if not attributes & TRANSACTIONAL:
                        transactional = False
            p = q
    if p != end:
        raise MalformedFrame(f"a Produce request with {end - p} bytes left over")
    return acks, transactional, batches, counts, total + MOST_OLD_MESSAGES - left


def _walk_flexible(  # noqa: C901 - one flat loop: calls would double the time of the hottest code there is
    buf: Buffer, p: int, end: int, version: int, forbidden: Collection[bytes]
) -> Walked:
    # One byte varints (two bytes for records) are read in place. `p` only grows and is compared with `end`
    # before a value is stored. Values read beyond the frame are discarded.
    length = buf[p]
    p += 1
    if length >= 0x80:
        length, p = read_uvarint(buf, p - 1)
    transactional = length > 0
    if transactional:
        p += length - 1
    (acks,) = _I16(buf, p)
    p += 6
    topics = buf[p]
    p += 1
    if topics >= 0x80:
        topics, p = read_uvarint(buf, p - 1)
    topics -= 1
    if not 0 <= topics * 3 <= end - p:
        raise MalformedFrame(f"{topics} topics in {end - p} bytes")
    batches: list[ProducerBatch] = []
    counts: list[int] = []
    total = topics
    left = MOST_OLD_MESSAGES
    for _ in range(topics):
        if version >= FIRST_TOPIC_ID:
            q = p + 16
            if q > end:
                raise MalformedFrame("a topic id beyond the end of the frame")
            topic = b"\x00" + buf[p:q]
        else:
            length = buf[p]
            p += 1
            if length >= 0x80:
                length, p = read_uvarint(buf, p - 1)
            q = p + length - 1
            if not 0 < length <= MOST_TOPIC_NAME_BYTES + 1 or q > end:
                raise MalformedFrame(f"a topic name of {length - 1} bytes")
            topic = bytes(buf[p:q])
        if topic in forbidden:
            raise ForbiddenTopic(acks)
        p = q
        partitions = buf[p]
        p += 1
        if partitions >= 0x80:
            partitions, p = read_uvarint(buf, p - 1)
        partitions -= 1
        total += partitions
        if not 0 <= partitions * 6 <= end - p or total > MOST_PARTITIONS:
            raise _too_many(partitions, total, end - p)
        for _ in range(partitions):
            (index,) = unpack_i32(buf, p)
            length = buf[p + 4]
            p += 5
            if length >= 0x80:
                high = buf[p]
                if high < 0x80:
                    length = (length & 0x7F) | high << 7
                    p += 1
                else:
                    length, p = read_uvarint(buf, p - 1)
            length -= 1
            q = p
            if length > 0:
                q += length
                if q > end:
                    raise MalformedFrame(f"records of {length} bytes, {end - p} left")
                if length < BATCH_HEADER_BYTES:
                    left, marked = _walk_records(buf, p, q, topic, index, batches, counts, left)
                    transactional &= marked
                else:
                    batch_length, magic, attributes, producer_id, epoch, sequence, count = unpack_batch(
                        buf, p
                    )
                    if magic != 2 or batch_length != length - LENGTH_OVERHEAD:
                        left, marked = _walk_records(buf, p, q, topic, index, batches, counts, left)
                        transactional &= marked
                    elif producer_id >= 0:
                        batches.append((producer_id, epoch, sequence, topic, index))
                        counts.append(count)
                        if not attributes & TRANSACTIONAL:
                            transactional = False
            if buf[q] == 0:
                p = q + 1
            else:
                p = skip_tags(buf, q, end)
                total += (p - q) // TAGS_BYTES_FOR_ONE
                if total > MOST_PARTITIONS:
                    raise _too_many(partitions, total, end - p)
        if buf[p] == 0:
            p += 1
        else:
            q = p
            p = skip_tags(buf, q, end)
            total += (p - q) // TAGS_BYTES_FOR_ONE
    if total > MOST_PARTITIONS:
        raise _too_many(0, total, end - p)
    p = p + 1 if buf[p] == 0 else skip_tags(buf, p, end)
    if p != end:
        raise MalformedFrame(f"a Produce request with {end - p} bytes left over")
    return acks, transactional, batches, counts, total + MOST_OLD_MESSAGES - left


def _too_many(partitions: int, total: int, left: int) -> MalformedFrame | FrameTooLarge:
    if total > MOST_PARTITIONS:
        return FrameTooLarge(
            f"a Produce request of {total} topics and partitions, {MOST_PARTITIONS} are allowed"
        )
    return MalformedFrame(f"{partitions} partitions in {left} bytes")


def _walk_records(
    buf: Buffer,
    p: int,
    end: int,
    topic: bytes,
    index: int,
    batches: list[ProducerBatch],
    counts: list[int],
    left: int,
) -> tuple[int, bool]:
    """Walk a partition that is not exactly one magic 2 batch; append to `batches` and `counts`.

    Takes and returns the number of entries left for such partitions; also returns False if a batch is not
    transactional. Kafka accepts several batches per partition only up to version 2.
    """
    transactional = True
    while p != end:
        if left <= 0 or len(batches) >= MOST_PARTITIONS:
            raise FrameTooLarge(
                f"a Produce request of more than {MOST_PARTITIONS} batches or {MOST_OLD_MESSAGES} old messages"
            )
        left -= 1
        if end - p < _LEAST_OLD_ENTRY:
            raise MalformedFrame(f"{end - p} bytes left over after the last batch of a partition")
        length, magic = _LENGTH_MAGIC(buf, p)
        q = p + LENGTH_OVERHEAD + length
        least = BATCH_HEADER_BYTES if magic == 2 else _LEAST_OLD_ENTRY
        if not 0 <= magic <= 2 or q > end or q - p < least:
            raise MalformedFrame(f"a batch of magic {magic} and {length} bytes, {end - p} left")
        if magic == 2:
            _, _, attributes, producer_id, epoch, sequence, count = unpack_batch(buf, p)
            if producer_id >= 0:
                batches.append((producer_id, epoch, sequence, topic, index))
                counts.append(count)
                if not attributes & TRANSACTIONAL:
                    transactional = False
        p = q
    return left, transactional


def transactional_id(buf: Buffer, head: RequestHead) -> bytes | None:
    """Return the transactional id of the Produce request in `buf` in UTF-8, or None.

    Raises MalformedFrame, or UnsupportedVersion.
    """
    if head.api_version < _FIRST_WITH_TRANSACTIONS:
        return None
    return Reader(buf, head.body, head.end, flexible=head.api_version >= FIRST_FLEXIBLE).raw_string()
