"""Positions of throttle_time_ms in Produce, Fetch and ShareFetch answers, and fetches with lowered max_bytes. PURE.

A byte quota (KIP-13, KIP-219) is reported to the client in a field that the broker has already written. In a Produce
answer (versions 1-13) it is the last field, before the tags; in a Fetch (1-18) or ShareFetch (1-2) answer it is the
first after the header, so that it can be written while a hundred megabytes of records have not arrived yet. Produce
and Fetch of version 0 have no such field: there the mute alone holds the client.

Must not know quotas, time or connections.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final

from pidgate.protocol.errors import MalformedFrame, TruncatedFrame, UnsupportedVersion
from pidgate.protocol.fetch import FETCH, SHARE_FETCH
from pidgate.protocol.frames import SIZE_PREFIX, Buffer, Reader, framed, skip_tags
from pidgate.protocol.headers import RequestHead, is_flexible
from pidgate.protocol.produce import FIRST_FLEXIBLE, MAX_VERSION, PRODUCE
from pidgate.protocol.produce_answers import behind_all_topics, may_hold_endpoints

THROTTLE_BYTES: Final = 4
"""Bytes of throttle_time_ms, a signed big-endian int32."""

HEAD_BYTES: Final = SIZE_PREFIX + 4 + 1 + THROTTLE_BYTES
"""So many bytes of a Fetch or ShareFetch answer, its size prefix included, hold throttle_time_ms for certain, unless
its header has tags: size, correlation id, no tags, throttle_time_ms. Kafka has never defined a tag there."""

MOST_THROTTLE_MS: Final = 0x7FFFFFFF
"""The longest throttle that the field holds: 24 days. A mute may be longer."""

_I32: Final = Struct(">i")
_CORRELATION_BYTES: Final = 4
_LEAST_PRODUCE_ANSWER: Final = _CORRELATION_BYTES + 4 + THROTTLE_BYTES  # classic, without topics

_FIRST_WITH_MAX_BYTES: Final = 3
_FIRST_WITHOUT_REPLICA_ID: Final = 15


def read(buf: Buffer, at: int) -> int:
    """The throttle_time_ms at `at`. Raises MalformedFrame when the buffer ends before it does."""
    try:
        value: int = _I32.unpack_from(buf, at)[0]
    except struct_error as error:
        raise MalformedFrame("an answer that ends before its throttle_time_ms") from error
    return value


def write(buf: bytearray | memoryview, at: int, throttle_time_ms: int) -> None:
    """Write throttle_time_ms at `at`, at most MOST_THROTTLE_MS. Raises MalformedFrame when it does not fit there."""
    try:
        _I32.pack_into(buf, at, min(throttle_time_ms, MOST_THROTTLE_MS))
    except struct_error as error:
        raise MalformedFrame("an answer that ends before its throttle_time_ms") from error


def raise_to(buf: bytearray | memoryview, at: int, throttle_time_ms: int) -> int:
    """Make the throttle_time_ms at `at` the larger of what the broker says and of this one, and return it."""
    told_ms = read(buf, at)
    if throttle_time_ms <= told_ms:
        return told_ms
    write(buf, at, throttle_time_ms)
    return min(throttle_time_ms, MOST_THROTTLE_MS)


def produce_throttle_at(buf: Buffer, start: int, end: int, version: int) -> int | None:
    """Return the position of throttle_time_ms in the whole Produce answer buf[start:end], its header included.

    None: version 0 has none. Raises MalformedFrame, and UnsupportedVersion above MAX_VERSION.
    """
    if may_be_before_tags(buf, start, end, version):
        return _behind_all_topics(buf, start, end, version)
    return last_throttle_at(buf, start, end, version)


def may_be_before_tags(buf: Buffer, start: int, end: int, version: int) -> bool:
    """Return whether the whole Produce answer buf[start:end] must be walked to its throttle_time_ms; False: it is last.

    Raises UnsupportedVersion above MAX_VERSION.
    """
    if not 0 <= version <= MAX_VERSION:
        raise UnsupportedVersion(PRODUCE, version)
    return version >= FIRST_FLEXIBLE and may_hold_endpoints(buf, start, end)


def last_throttle_at(buf: Buffer, start: int, end: int, version: int) -> int | None:
    """As `produce_throttle_at`, of an answer in which it is last. Raises MalformedFrame."""
    if version == 0:
        return None
    if version < FIRST_FLEXIBLE:
        if end - start < _LEAST_PRODUCE_ANSWER or end > len(buf):
            raise MalformedFrame(f"a Produce answer of {end - start} bytes")
        return end - THROTTLE_BYTES
    return end - THROTTLE_BYTES - 1  # before the empty tag buffer, which is the last byte


def _behind_all_topics(buf: Buffer, start: int, end: int, version: int) -> int:
    """The place in a flexible answer that may have tags (node endpoints, KIP-951) behind it."""
    answer = behind_all_topics(buf, start, end, version)
    at = answer.skip(THROTTLE_BYTES)
    answer.skip_tags()
    answer.finish()
    return at


def fetch_throttle_at(start: int, api_key: int, version: int) -> int | None:
    """Return the position of throttle_time_ms in a Fetch or ShareFetch answer that begins at `start`, header included.

    None: Fetch version 0 has none. The header is taken to be without tags; `fetch_throttle_in` looks. Raises
    UnsupportedVersion for another API.
    """
    if api_key not in (FETCH, SHARE_FETCH):
        raise UnsupportedVersion(api_key, version)
    if version == 0 and api_key == FETCH:
        return None
    return start + _CORRELATION_BYTES + (1 if is_flexible(api_key, version) else 0)


def fetch_throttle_in(buf: Buffer, start: int, end: int, api_key: int, version: int) -> int | None:
    """As `fetch_throttle_at`, with the header's tags skipped; buf[start:end] is what has arrived of the answer.

    None, too, when the field itself has not arrived whole (that takes HEAD_BYTES, or a tagged header): the answer
    then passes as it came. Raises MalformedFrame for a tag buffer that cannot be one.
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


def lowered_fetch(buf: Buffer, head: RequestHead, limit_bytes: int) -> bytes | None:
    """Return the Fetch or ShareFetch request in `buf`, framed, with its max_bytes lowered to `limit_bytes`, at least 1.

    None: it asks for no more than that, or has no max_bytes (Fetch below version 3). min_bytes stays: brokers take it
    to be at most max_bytes (Kafka's KafkaApis.handleFetchRequest and handleShareFetchRequest).
    Raises MalformedFrame, and UnsupportedVersion for another API.
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
