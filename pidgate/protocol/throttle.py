"""Position of throttle_time_ms in Produce, Fetch and ShareFetch responses; lower max_bytes of fetches. PURE.

Byte quotas (KIP-13, KIP-219) report a throttle in a field that the broker has already written. In Produce
responses (1-13) it is the last field before the tags. In Fetch (1-18) and ShareFetch (1-2) responses it is
the first field after the header, so it can be written before the records have arrived. Produce and Fetch v0
have no such field: there only the mute slows the client.

Must not know quotas, time or connections.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final

from pidgate.protocol.errors import ErrorCode, MalformedFrame, TruncatedFrame, UnsupportedVersion
from pidgate.protocol.fetch import FETCH, SHARE_FETCH
from pidgate.protocol.frames import SIZE_PREFIX, Buffer, Reader, framed, skip_tags
from pidgate.protocol.headers import RequestHead, is_flexible
from pidgate.protocol.produce import FIRST_FLEXIBLE, MAX_VERSION, PRODUCE
from pidgate.protocol.produce_answers import behind_all_topics, may_hold_endpoints

THROTTLE_BYTES: Final = 4
"""Bytes of throttle_time_ms, a signed big-endian int32."""

HEAD_BYTES: Final = SIZE_PREFIX + 4 + 1 + THROTTLE_BYTES
"""Bytes of a Fetch or ShareFetch response that include throttle_time_ms unless the header has tags.

Size, correlation id, no tags, throttle_time_ms. Kafka has never defined a tag in this header.
"""

MOST_THROTTLE_MS: Final = 0x7FFFFFFF
"""Maximum of the field: 24 days. A mute may be longer."""

_I32: Final = Struct(">i")
_CORRELATION_BYTES: Final = 4
_LEAST_PRODUCE_ANSWER: Final = _CORRELATION_BYTES + 4 + THROTTLE_BYTES  # classic encoding, without topics

_FIRST_WITH_MAX_BYTES: Final = 3
_FIRST_WITH_SESSION: Final = 7
_NO_SESSION: Final = 0
_NEW_SESSION: Final = 0
"""Epoch of a Fetch that begins a session; -1 is one without. Both are whole."""
_FIRST_WITHOUT_REPLICA_ID: Final = 15


def read(buf: Buffer, at: int) -> int:
    """Return the throttle_time_ms at `at`. Raises MalformedFrame if the buffer ends too early."""
    try:
        value: int = _I32.unpack_from(buf, at)[0]
    except struct_error as error:
        raise MalformedFrame("a response that ends before its throttle_time_ms") from error
    return value


def write(buf: bytearray | memoryview, at: int, throttle_time_ms: int) -> None:
    """Write throttle_time_ms at `at`, at most MOST_THROTTLE_MS.

    Raises MalformedFrame if the buffer ends too early.
    """
    try:
        _I32.pack_into(buf, at, min(throttle_time_ms, MOST_THROTTLE_MS))
    except struct_error as error:
        raise MalformedFrame("a response that ends before its throttle_time_ms") from error


def raise_to(buf: bytearray | memoryview, at: int, throttle_time_ms: int) -> int:
    """Set the throttle_time_ms at `at` to the larger of the broker's value and this one; return it."""
    told_ms = read(buf, at)
    if throttle_time_ms <= told_ms:
        return told_ms
    write(buf, at, throttle_time_ms)
    return min(throttle_time_ms, MOST_THROTTLE_MS)


def produce_throttle_at(buf: Buffer, start: int, end: int, version: int) -> int | None:
    """Return the position of throttle_time_ms in the Produce response buf[start:end] (header included).

    None for version 0. Raises MalformedFrame, and UnsupportedVersion above MAX_VERSION.
    """
    if may_be_before_tags(buf, start, end, version):
        return _behind_all_topics(buf, start, end, version)
    return last_throttle_at(buf, start, end, version)


def may_be_before_tags(buf: Buffer, start: int, end: int, version: int) -> bool:
    """Return whether the Produce response buf[start:end] may have tags after throttle_time_ms.

    Raises UnsupportedVersion above MAX_VERSION.
    """
    if not 0 <= version <= MAX_VERSION:
        raise UnsupportedVersion(PRODUCE, version)
    return version >= FIRST_FLEXIBLE and may_hold_endpoints(buf, start, end)


def last_throttle_at(buf: Buffer, start: int, end: int, version: int) -> int | None:
    """Do the same as `produce_throttle_at` for a response in which it is last. Raises MalformedFrame."""
    if version == 0:
        return None
    if version < FIRST_FLEXIBLE:
        if end - start < _LEAST_PRODUCE_ANSWER or end > len(buf):
            raise MalformedFrame(f"a Produce response of {end - start} bytes")
        return end - THROTTLE_BYTES
    return end - THROTTLE_BYTES - 1  # before the empty tag buffer, which is the last byte


def _behind_all_topics(buf: Buffer, start: int, end: int, version: int) -> int:
    """Return the position in a flexible response that may have tags (node endpoints, KIP-951) after it."""
    answer = behind_all_topics(buf, start, end, version)
    at = answer.skip(THROTTLE_BYTES)
    answer.skip_tags()
    answer.finish()
    return at


def fetch_throttle_at(start: int, api_key: int, version: int) -> int | None:
    """Return the position of throttle_time_ms in a Fetch or ShareFetch response at `start` (header included).

    None for Fetch v0. Assumes a header without tags; `fetch_throttle_in` checks it. Raises UnsupportedVersion
    for another API.
    """
    if api_key not in (FETCH, SHARE_FETCH):
        raise UnsupportedVersion(api_key, version)
    if version == 0 and api_key == FETCH:
        return None
    return start + _CORRELATION_BYTES + (1 if is_flexible(api_key, version) else 0)


def fetch_throttle_in(buf: Buffer, start: int, end: int, api_key: int, version: int) -> int | None:
    """Do the same as `fetch_throttle_at`, but skip header tags; buf[start:end] is the part received so far.

    Also None if the field has not fully arrived (HEAD_BYTES, or a tagged header); the response is then
    forwarded unchanged. Raises MalformedFrame for an invalid tag buffer.
    """
    at = fetch_throttle_at(start, api_key, version)
    if at is None or at + THROTTLE_BYTES > end:
        return None
    if is_flexible(api_key, version) and buf[at - 1]:
        try:
            at = skip_tags(buf, at - 1, end)
        except TruncatedFrame:
            return None
    return at if at + THROTTLE_BYTES <= end else None


def empty_fetch_answer(
    buf: Buffer, head: RequestHead, throttle_time_ms: int, error: ErrorCode = ErrorCode.NONE
) -> bytes | None:
    """Return the framed answer to a Fetch that gets nothing now: no topics, no session, and the throttle.

    None without an error for a Fetch within a session, since the broker would not know of the answer, and for a
    ShareFetch. Raises MalformedFrame.
    """
    if head.api_key != FETCH:
        return None
    version = head.api_version
    request = Reader(buf, head.body, head.end, flexible=True)
    if version >= _FIRST_WITH_SESSION:
        # max_wait_ms to session_id
        request.skip(17 if version >= _FIRST_WITHOUT_REPLICA_ID else 21)
        if request.i32() > _NEW_SESSION and error is ErrorCode.NONE:
            return None
    is_flexible_version = is_flexible(FETCH, version)
    return framed(
        _I32.pack(head.correlation_id),
        b"\0" if is_flexible_version else b"",
        _I32.pack(throttle_time_ms) if version >= 1 else b"",
        error.to_bytes(2, "big") + _I32.pack(_NO_SESSION) if version >= _FIRST_WITH_SESSION else b"",
        b"\1\0" if is_flexible_version else _I32.pack(0),
    )


def lowered_fetch(buf: Buffer, head: RequestHead, limit_bytes: int) -> bytes | None:
    """Return the Fetch or ShareFetch request in `buf`, framed, with lower max_bytes.

    `limit_bytes` is the new value, at least 1.

    None if it is already that low or absent (Fetch below version 3). min_bytes stays: brokers cap it at
    max_bytes (KafkaApis.handleFetchRequest and handleShareFetchRequest). Raises MalformedFrame, and
    UnsupportedVersion for another API.
    """
    request = Reader(buf, head.body, head.end, flexible=True)
    if head.api_key == FETCH:
        if head.api_version < _FIRST_WITH_MAX_BYTES:
            return None
        if head.api_version < _FIRST_WITHOUT_REPLICA_ID:
            request.skip(4)
    elif head.api_key == SHARE_FETCH:
        request.skip_string()  # group id
        request.skip_string()  # member id
        request.skip(4)  # share session epoch
    else:
        raise UnsupportedVersion(head.api_key, head.api_version)
    request.skip(8)  # max_wait_ms, min_bytes
    at = request.pos
    limit_bytes = max(limit_bytes, 1)
    if request.i32() <= limit_bytes:
        return None
    return framed(buf[head.start : at], _I32.pack(limit_bytes), buf[at + 4 : head.end])
