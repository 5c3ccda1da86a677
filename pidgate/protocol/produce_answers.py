"""Produce responses (api key 0, versions 0-13): refusals, error codes, node endpoints (KIP-951).

Most responses have no error and no endpoints, and every response is checked. `is_plain_success`,
`may_hold_errors` and `may_hold_endpoints` therefore inspect only a few bytes at known offsets. Versions:
produce.py.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from pidgate.protocol.errors import ErrorCode, MalformedFrame, UnsupportedVersion
from pidgate.protocol.frames import (
    Buffer,
    Reader,
    Translate,
    array_count,
    encode_string,
    framed,
    read_uvarint,
    skip_tags,
)
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.produce import FIRST_FLEXIBLE, FIRST_TOPIC_ID, MAX_VERSION, PRODUCE, unpack_i32
from pidgate.protocol.splice import Splice, splice_tag, translate_node_endpoints
from pidgate.protocol.work import MOST_MESSAGES, MOST_PARTITIONS, TAGS_BYTES_FOR_ONE, Steps, at_once

FIRST_WITH_ENDPOINTS: Final = 10
"""First version with node endpoints in the response (KIP-951)."""
# End of a response whose last partition succeeded: record errors (empty compact array), null message, tags of
# partition and topic, throttle_time_ms 0, tags of the response.
QUIET_END: Final = b"\x01" + bytes(8)
"""End of a response whose last partition has no error, without throttle: see may_hold_endpoints."""


PartitionError = tuple[bytes, int, int]
"""(topic as in ProducerBatch, partition, error code)."""

_PLAIN_ENTRY_BYTES: Final = (14, 14, 22, 22, 22, 30, 30, 30, 36, 33, 33, 33, 33, 33)
"""By version: bytes of a partition without record errors, message or tags, as in every success."""
_TOPIC_ID_BYTES: Final = 16
_LEAST_FLEXIBLE_BYTES: Final = 4 + 1 + 1 + 1 + 1 + 33 + 1 + 4 + 1


def has_head(answer: bytes, size: int, correlation_id: int) -> bool:
    """Return whether the response (size prefix included, at least 8 bytes) has this size and correlation id."""
    return size == (answer[0] << 24 | answer[1] << 16 | answer[2] << 8 | answer[3]) and (
        correlation_id & 0xFFFFFFFF
    ) == (answer[4] << 24 | answer[5] << 16 | answer[6] << 8 | answer[7])


def is_plain_success(answer: bytes, start: int, end: int, version: int) -> bool:
    """Return whether all partitions in answer[start:end] succeeded, without throttle, endpoints or tags.

    Such a response needs no processing. Hot path; False is inconclusive.
    """
    if version < FIRST_FLEXIBLE or end - start < _LEAST_FLEXIBLE_BYTES or answer[end - 9 : end] != QUIET_END:
        return False
    p = start + 6
    topics = answer[p - 1]
    if answer[p - 2] or not 1 < topics < 0x80:
        return False
    entry_bytes = _PLAIN_ENTRY_BYTES[version]
    for _ in range(topics - 1):
        if version >= FIRST_TOPIC_ID:
            p += _TOPIC_ID_BYTES
        elif p < end and answer[p] < 0x80:
            p += answer[p]
        else:
            return False
        if p >= end or answer[p] >= 0x80:
            return False
        partitions = answer[p] - 1
        p += 1
        if partitions < 1 or p + partitions * entry_bytes >= end:
            return False
        for _ in range(partitions):
            if answer[p + 4] or answer[p + 5]:  # the error code
                return False
            p += entry_bytes
        if answer[p]:
            return False
        p += 1
    return p + 5 == end  # throttle_time_ms and no tags


def may_hold_errors(buf: Buffer, start: int, end: int, version: int) -> bool:
    """Return whether `read_errors` must read the response buf[start:end]; False: it has no error code.

    Also true for any response in unusual form. Never raises for a broker's response in a supported version.
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
                return True  # a name longer than 126 bytes
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


def behind_header(buf: Buffer, start: int, end: int, version: int) -> Reader:
    """Return a reader at the topics of the response buf[start:end].

    Raises MalformedFrame, and UnsupportedVersion above MAX_VERSION.
    """
    if not 0 <= version <= MAX_VERSION:
        raise UnsupportedVersion(PRODUCE, version)
    answer = Reader(buf, start, end, flexible=version >= FIRST_FLEXIBLE)
    answer.skip(4)
    answer.skip_tags()
    return answer


def read_errors(answer: Reader, version: int) -> Generator[None, None, list[PartitionError]]:
    """Return the partitions with an error code, in steps; leaves the reader at throttle_time_ms.

    A broker lists every rejected record, some 100,000 for 1 MiB of the smallest ones. Raises MalformedFrame.
    """
    after_error_bytes = 8 + (8 if version >= 2 else 0) + (8 if version >= 5 else 0)
    found: list[PartitionError] = []
    for _ in range(answer.count(3)):
        by_id = version >= FIRST_TOPIC_ID
        topic = b"\x00" + answer.read_bytes(_TOPIC_ID_BYTES) if by_id else answer.raw_string() or b""
        for _ in range(answer.count(6 + after_error_bytes)):
            partition, error_code = answer.i32(), answer.i16()
            if error_code:
                found.append((topic, partition, error_code))
            answer.skip(after_error_bytes)
            if version >= 8:
                for _ in range(answer.count(6)):
                    answer.skip(4)
                    answer.skip_string()
                    answer.skip_tags()
                    yield
                answer.skip_string()
            answer.skip_tags()
            yield
        answer.skip_tags()
        yield
    return found


def refusal(
    buf: Buffer,
    head: RequestHead,
    throttle_time_ms: int,
    error_message: str | None,
    error_code: int = ErrorCode.NOT_ENOUGH_REPLICAS,
) -> bytes:
    """Return the framed response that refuses the Produce request in `buf`.

    Every partition, in request order, gets the error code and base offset -1. Depending on the version it
    also gets log append time and log start offset -1, and the error message (v8+, first MOST_MESSAGES
    partitions); the response gets throttle_time_ms (v1+). The caller has walked the request and checked that
    acks is not 0, which has no response. Raises UnsupportedVersion or MalformedFrame, and FrameTooLarge above
    MOST_PARTITIONS.
    """
    version = head.api_version
    if head.api_key != PRODUCE or not 0 <= version <= MAX_VERSION:
        raise UnsupportedVersion(head.api_key, version)
    flexible = version >= FIRST_FLEXIBLE
    # The walk of a request for a forbidden topic stopped at that topic, so its counts are checked here.
    request = Reader(buf, head.body, head.end, flexible=flexible, most_elements=MOST_PARTITIONS)
    if version >= 3:
        request.skip_string()
    request.skip(6)

    tags = b"\x00" if flexible else b""
    with_message = _partition_outcome(version, error_code, error_message)
    without = _partition_outcome(version, error_code, None)
    answer: list[bytes] = [head.correlation_id.to_bytes(4, "big", signed=True), tags]
    topics = request.count(3)
    answer.append(array_count(topics, flexible=flexible))
    messages_left = MOST_MESSAGES
    for _ in range(topics):
        answer.append(_topic_key(request, version))
        partitions = request.count(6)
        answer.append(array_count(partitions, flexible=flexible))
        for index in _partition_indexes(request, partitions):
            answer.append(index)
            answer.append(with_message if messages_left > 0 else without)
            messages_left -= 1
        answer.append(tags)
        request.skip_tags()
    request.skip_tags()
    request.finish()
    if version >= 1:
        answer.append(throttle_time_ms.to_bytes(4, "big", signed=True))
    return framed(*answer, tags)


def _partition_indexes(request: Reader, partitions: int) -> list[bytes]:
    """Read this many partitions of one topic and skip their records. By hand, for thousands of partitions."""
    buf, p, end = request.buf, request.pos, request.end
    indexes: list[bytes] = []
    for _ in range(partitions):
        indexes.append(bytes(buf[p : p + 4]))
        if request.flexible:
            length, p = read_uvarint(buf, p + 4)
            p += length - 1 if length else 0
            if p < end and buf[p] == 0:
                p += 1
            else:
                at, p = p, skip_tags(buf, p, end)
                request.spend((p - at) // TAGS_BYTES_FOR_ONE)
        else:
            if p + 8 > end:
                raise MalformedFrame("a partition beyond the end of the frame")
            (length,) = unpack_i32(buf, p + 4)
            p += 8 + max(length, 0)
    request.skip(p - request.pos)
    return indexes


def _topic_key(request: Reader, version: int) -> bytes:
    """Return a topic's id, or its name with the length. The response repeats these bytes."""
    if version >= FIRST_TOPIC_ID:
        return request.read_bytes(16)
    at = request.pos
    if request.raw_string() is None:
        raise MalformedFrame("a topic without a name")
    return bytes(request.buf[at : request.pos])


def _partition_outcome(version: int, error_code: int, error_message: str | None) -> bytes:
    """Return the bytes after the partition index, the same for every refused partition."""
    flexible = version >= FIRST_FLEXIBLE
    outcome = error_code.to_bytes(2, "big", signed=True) + b"\xff" * 8  # base offset -1
    if version >= 2:
        outcome += b"\xff" * 8  # log append time -1
    if version >= 5:
        outcome += b"\xff" * 8  # log start offset -1
    if version >= 8:
        outcome += array_count(0, flexible=flexible)  # no record errors
        outcome += encode_string(error_message, flexible=flexible)
    return outcome + (b"\x00" if flexible else b"")


def may_hold_endpoints(buf: Buffer, start: int, end: int) -> bool:
    """Return whether the Produce response (v10+) buf[start:end] must be walked; False: it has no endpoints.

    Decided by the last nine bytes. Node endpoints are the response's first tagged field and come last, after
    throttle_time_ms. A response with endpoints ends in a rack and its tag buffer: at least 0x01 (empty host),
    a four byte port, null rack, no tags. Even port 0 leaves six zero bytes after 0x01 instead of eight. Only
    an unknown tagged field that ends in exactly these nine bytes could hide endpoints.
    """
    return buf[end - 9 : end] != QUIET_END or end - start < 9


def behind_all_topics(buf: Buffer, start: int, end: int, version: int) -> Reader:
    """Return a reader at throttle_time_ms of the response buf[start:end] (header included)."""
    answer = behind_header(buf, start, end, version)
    at_once(read_errors(answer, version))
    return answer


def rewrite_response(buf: Buffer, start: int, end: int, version: int, translate: Translate) -> bytes | None:
    """Return the Produce response buf[start:end] (header included), framed, with translated node endpoints.

    None if it has none. Raises MalformedFrame, and UnsupportedVersion above MAX_VERSION.
    """
    if version > MAX_VERSION:
        raise UnsupportedVersion(PRODUCE, version)
    if version < FIRST_WITH_ENDPOINTS:
        return None
    return at_once(rewrite_end(behind_all_topics(buf, start, end, version), start, translate))


def rewrite_end(answer: Reader, start: int, translate: Translate) -> Steps:
    """Do the same as `rewrite_response` in steps, for a response (v10+) with its reader at throttle_time_ms."""
    answer.skip(4)
    splice = Splice(answer.buf, start, answer.end)
    yield from splice_tag(
        answer, splice, 0, lambda tag, change: translate_node_endpoints(tag, change, translate)
    )
    answer.finish()
    return splice.framed() if splice.changed else None
