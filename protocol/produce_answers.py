"""Error codes in Produce answers (api key 0, versions 0-13): is there one at all, and which, of which partition.

Nearly every answer holds none, and every answer is asked: `may_hold_errors` therefore looks at the error codes
alone, at the distances at which they stand when nothing else is in the way. Layout: see produce.py.
"""

from __future__ import annotations

from typing import Final

from pidgate.protocol.errors import UnsupportedVersion
from pidgate.protocol.frames import Buffer, Reader, read_uvarint
from pidgate.protocol.produce import (
    FIRST_FLEXIBLE,
    FIRST_TOPIC_ID,
    MAX_VERSION,
    PRODUCE,
    QUIET_END,
    unpack_i32,
)

PartitionError = tuple[bytes, int, int]
"""(topic as in a ProducerBatch, partition, Kafka's error code)."""

_PLAIN_ENTRY_BYTES: Final = (14, 14, 22, 22, 22, 30, 30, 30, 36, 33, 33, 33, 33, 33)
"""By version: a partition without record errors, message or tags, as every partition without error is."""
_TOPIC_ID_BYTES: Final = 16
_LEAST_FLEXIBLE_BYTES: Final = 4 + 1 + 1 + 1 + 1 + 33 + 1 + 4 + 1


def has_head(answer: bytes, size: int, correlation_id: int) -> bool:
    """Whether the answer, its size prefix included, begins with these two numbers. It has at least 8 bytes."""
    return size == (answer[0] << 24 | answer[1] << 16 | answer[2] << 8 | answer[3]) and (
        correlation_id & 0xFFFFFFFF
    ) == (answer[4] << 24 | answer[5] << 16 | answer[6] << 8 | answer[7])


def is_plain_success(answer: bytes, start: int, end: int, version: int) -> bool:
    """Whether answer[start:end] is that of partitions of one topic which were all written, with no throttle, endpoint
    or tag: nothing in it concerns anybody but the client. The hot path; False says nothing.
    """
    if version < FIRST_FLEXIBLE or end - start < _LEAST_FLEXIBLE_BYTES or answer[end - 9 : end] != QUIET_END:
        return False
    p = start + 6
    if answer[p - 2] or answer[p - 1] != 2:  # no tags, one topic
        return False
    if version >= FIRST_TOPIC_ID:
        p += _TOPIC_ID_BYTES
    elif answer[p] < 0x80:
        p += answer[p]
    else:
        return False
    if p >= end or answer[p] >= 0x80:
        return False
    partitions = answer[p] - 1
    p += 1
    entry_bytes = _PLAIN_ENTRY_BYTES[version]
    if partitions < 1 or p + partitions * entry_bytes + 6 != end:
        return False
    for _ in range(partitions):
        if answer[p + 4] or answer[p + 5]:  # the error code
            return False
        p += entry_bytes
    return True


def may_hold_errors(buf: Buffer, start: int, end: int, version: int) -> bool:
    """Whether the answer buf[start:end] has to be read by `partition_errors`; False: it holds no error code.

    True as well for whatever is not as plain as an answer without errors is. Never raises for what a broker
    sends; the version is one that is spoken.
    """
    entry_bytes = _PLAIN_ENTRY_BYTES[version]
    try:
        if version < FIRST_FLEXIBLE:
            return _may_hold_errors_classic(buf, start + 4, end, version, entry_bytes)
        topics = buf[start + 5]
        if buf[start + 4] or not 0 < topics < 0x80:
            return True
        p = start + 6
        for _ in range(topics - 1):
            if version >= FIRST_TOPIC_ID:
                p += _TOPIC_ID_BYTES
            elif buf[p] < 0x80:
                p += buf[p]
            else:
                return True  # a name of more than 126 bytes
            partitions = buf[p]
            p += 1
            if partitions == 2:
                if buf[p + 4] or buf[p + 5]:
                    return True
                p += entry_bytes
            else:
                if partitions >= 0x80:
                    partitions, p = read_uvarint(buf, p - 1)
                stop = p + entry_bytes * (partitions - 1)
                if stop > end or any(buf[p + 4 : stop : entry_bytes]) or any(buf[p + 5 : stop : entry_bytes]):
                    return True
                p = stop
            if buf[p]:
                return True
            p += 1
        return p + 5 != end  # throttle_time_ms and no tags
    except IndexError:
        return True


def _may_hold_errors_classic(buf: Buffer, p: int, end: int, version: int, entry_bytes: int) -> bool:
    if p + 4 > end:
        return True
    (topics,) = unpack_i32(buf, p)
    p += 4
    for _ in range(topics):
        p += 2 + (buf[p] << 8 | buf[p + 1])
        if p + 4 > end:
            return True
        (partitions,) = unpack_i32(buf, p)
        p += 4
        stop = p + entry_bytes * partitions
        if not p <= stop <= end:
            return True
        if partitions == 1:
            if buf[p + 4] or buf[p + 5]:
                return True
        elif any(buf[p + 4 : stop : entry_bytes]) or any(buf[p + 5 : stop : entry_bytes]):
            return True
        p = stop
    return p + (4 if version >= 1 else 0) != end


def partition_errors(buf: Buffer, start: int, end: int, version: int) -> list[PartitionError]:
    """Every partition of the answer buf[start:end] (its header included) whose error code is not 0.

    Raises MalformedFrame, and UnsupportedVersion above MAX_VERSION.
    """
    if not 0 <= version <= MAX_VERSION:
        raise UnsupportedVersion(PRODUCE, version)
    answer = Reader(buf, start, end, flexible=version >= FIRST_FLEXIBLE)
    answer.skip(4)
    answer.skip_tags()
    after_error_bytes = 8 + (8 if version >= 2 else 0) + (8 if version >= 5 else 0)
    found: list[PartitionError] = []
    for _ in range(answer.count(3)):
        by_id = version >= FIRST_TOPIC_ID
        topic = b"\x00" + answer.take(_TOPIC_ID_BYTES) if by_id else answer.raw_string() or b""
        for _ in range(answer.count(6 + after_error_bytes)):
            partition, error_code = answer.i32(), answer.i16()
            if error_code:
                found.append((topic, partition, error_code))
            answer.skip(after_error_bytes)
            if version >= 8:
                for _ in range(answer.count(4)):
                    answer.skip(4)
                    answer.skip_string()
                    answer.skip_tags()
                answer.skip_string()
            answer.skip_tags()
        answer.skip_tags()
    return found
