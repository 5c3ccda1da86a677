"""The messages we read or write outside the hot path, and the one door to kafka.protocol.

First half: a few small messages read by hand with frames.Reader. They pass on every connection, some before
the client has authenticated, so they must neither load the codec (0.1 s of imports) nor run into its traps.
The ApiVersions answer is spliced, so that tagged fields of newer brokers survive.

Second half: kafka.protocol behind a guard, for cold messages with many fields. It is imported at first use.
Whoever re-encodes a decoded message should know that the codec drops tagged fields it does not know.

Kafka: common/message/*.json; KIP-482 (tagged fields), KIP-511 (ApiVersions), KIP-152 and KIP-368 (SASL).
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from pidgate.protocol.errors import ErrorCode, FrameTooLarge, MalformedFrame, UnsupportedVersion
from pidgate.protocol.frames import Buffer, Reader, encode_string, framed
from pidgate.protocol.headers import is_flexible, peek_request, response_header_version
from pidgate.protocol.versions import SPOKEN, cap, speaks

METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
END_TXN: Final = 26
SASL_AUTHENTICATE: Final = 36

API_VERSIONS_PROBE_VERSION: Final = 3
"""Version of api_versions_request: understood by every broker since Kafka 2.4."""
METADATA_PROBE_VERSION: Final = 12
"""Version of metadata_request: the newest that Kafka 3.9 and 4.x have in common."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1

_RANGE = struct.Struct(">hhh")
_REQUEST_HEAD = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")
_INIT_ANSWER = struct.Struct(">ihqh")


class InitProducerIdRequest(NamedTuple):
    transactional_id: str | None
    producer_id: int
    """The id whose epoch the client wants bumped (v3+, KIP-360), or -1."""
    producer_epoch: int


class InitProducerIdAnswer(NamedTuple):
    error_code: int
    producer_id: int
    producer_epoch: int


class EndTxnRequest(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnAnswer(NamedTuple):
    error_code: int
    producer_id: int
    """v5+ (KIP-890): the id to go on with, a new one when the old one's epochs are used up. -1 before v5."""
    producer_epoch: int


class ApiVersionsAnswer(NamedTuple):
    error_code: int
    ranges: dict[int, tuple[int, int]]
    """api_key -> (min_version, max_version)."""


def _request(buf: Buffer, start: int, end: int, api_key: int) -> tuple[int, Reader]:
    """(api_version, a reader at the body) of a request that must be of this API, in a version we offer."""
    head = peek_request(buf, start, end)
    if head.api_key != api_key or not speaks(api_key, head.api_version):
        raise UnsupportedVersion(head.api_key, head.api_version)
    return head.api_version, Reader(buf, head.body, end, flexible=is_flexible(api_key, head.api_version))


def _answer(buf: Buffer, start: int, end: int, api_key: int, api_version: int) -> Reader:
    """A reader at the body of the answer to a request of this API and version."""
    if not speaks(api_key, api_version):
        raise UnsupportedVersion(api_key, api_version)
    reader = Reader(buf, start, end, flexible=response_header_version(api_key, api_version) == 1)
    reader.i32()  # the correlation id
    reader.skip_tags()
    reader.flexible = is_flexible(api_key, api_version)
    return reader


def _bytes(reader: Reader) -> bytes:
    """A field of type bytes; null reads as empty, as nobody tells them apart here."""
    return reader.take(max(reader.length(wide=True), 0))


# ApiVersions


def _api_versions_answer(buf: Buffer, start: int, end: int, request_version: int) -> tuple[int, int, Reader]:
    """(error_code, version of the body, reader after the error code) of an ApiVersions answer.

    A broker that does not know the request's version answers in v0 with UNSUPPORTED_VERSION (KIP-511). With
    any other error the answer has the version of the request.
    """
    reader = _answer(buf, start, end, API_VERSIONS, request_version)
    error_code = reader.i16()
    body_version = 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else request_version
    reader.flexible = is_flexible(API_VERSIONS, body_version)
    return error_code, body_version, reader


def cap_api_versions(buf: Buffer, start: int, end: int, request_version: int) -> bytes:
    """The framed ApiVersions answer with each version range cut to what we offer, and no other APIs.

    All else stays as the broker wrote it: throttle_time_ms, the features, and tagged fields known or not.
    """
    _, body_version, reader = _api_versions_answer(buf, start, end, request_version)
    head_end = reader.pos
    kept: list[bytes] = []
    for _ in range(reader.count(_RANGE.size)):
        at = reader.skip(_RANGE.size)
        api_key, min_version, max_version = _RANGE.unpack_from(buf, at)
        reader.skip_tags()
        offered = cap(api_key, min_version, max_version)
        if offered is not None:
            kept.append(_RANGE.pack(api_key, *offered) + bytes(buf[at + _RANGE.size : reader.pos]))
    tail = reader.pos
    if body_version >= 1:
        reader.i32()  # throttle_time_ms
    reader.skip_tags()
    reader.finish()
    count = _array_count(len(kept), flexible=reader.flexible)
    return framed(buf[start:head_end], count, *kept, buf[tail:end])


def too_new_api_versions(correlation_id: int) -> bytes:
    """The framed answer to an ApiVersions request whose version we do not know: v0 and code 35 (KIP-511).

    It names the versions of ApiVersions itself that we know, so that the client can ask again.
    """
    api = SPOKEN[API_VERSIONS]
    return framed(
        _CORRELATION_ID.pack(correlation_id),
        ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"),
        _array_count(1, flexible=False),
        _RANGE.pack(API_VERSIONS, api.min_version, api.max_version),
    )


def api_versions_answer(buf: Buffer, start: int, end: int, request_version: int) -> ApiVersionsAnswer:
    """What a broker offers, from its ApiVersions answer."""
    error_code, _, reader = _api_versions_answer(buf, start, end, request_version)
    ranges = {}
    for _ in range(reader.count(_RANGE.size)):
        api_key, min_version, max_version = _RANGE.unpack_from(buf, reader.skip(_RANGE.size))
        reader.skip_tags()
        ranges[api_key] = (min_version, max_version)
    return ApiVersionsAnswer(error_code, ranges)


def client_software(buf: Buffer, start: int, end: int) -> tuple[str, str] | None:
    """(client_software_name, client_software_version) of an ApiVersions request; None before v3 (KIP-511)."""
    api_version, reader = _request(buf, start, end, API_VERSIONS)
    if api_version < 3:
        return None
    return reader.string(), reader.string()


def api_versions_request(correlation_id: int, client_id: str, software_version: str = "unknown") -> bytes:
    """A framed ApiVersions request of our own, in API_VERSIONS_PROBE_VERSION.

    Kafka refuses a software version with other characters than letters, digits, dots and dashes.
    """
    return framed(
        _REQUEST_HEAD.pack(API_VERSIONS, API_VERSIONS_PROBE_VERSION, correlation_id),
        encode_string(client_id, flexible=False),
        b"\x00",
        encode_string("pidgate", flexible=True),
        encode_string(software_version, flexible=True),
        b"\x00",
    )


def metadata_request(correlation_id: int, client_id: str, topics: Sequence[str] = ()) -> bytes:
    """A framed Metadata request of our own for the brokers and these topics, in METADATA_PROBE_VERSION.

    Creates nothing. At most some dozen topics.
    """
    create_topics, topic_operations, no_tags = b"\x00", b"\x00", b"\x00"
    asked = b"".join(bytes(16) + encode_string(name, flexible=True) + no_tags for name in topics)
    return framed(
        _REQUEST_HEAD.pack(METADATA, METADATA_PROBE_VERSION, correlation_id),
        encode_string(client_id, flexible=False),
        no_tags,
        _array_count(len(topics), flexible=True) + asked + create_topics + topic_operations + no_tags,
    )


def _array_count(count: int, *, flexible: bool) -> bytes:
    if not flexible:
        return count.to_bytes(4, "big")
    # An array of APIs, of which there are fewer than 127: one byte is enough for the varint.
    return bytes((count + 1,))


# Producer ids


def init_producer_id_request(buf: Buffer, start: int, end: int) -> InitProducerIdRequest:
    """Who asks for a producer id: by transactional id, or (v3+) with an id whose epoch is to be bumped."""
    api_version, reader = _request(buf, start, end, INIT_PRODUCER_ID)
    transactional_id = reader.nullable_string()
    reader.i32()  # transaction_timeout_ms
    if api_version < 3:
        return InitProducerIdRequest(transactional_id, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return InitProducerIdRequest(transactional_id, reader.i64(), reader.i16())


def init_producer_id_answer(buf: Buffer, start: int, end: int, api_version: int) -> InitProducerIdAnswer:
    """The id that a broker gave out; with an error code the id is -1."""
    reader = _answer(buf, start, end, INIT_PRODUCER_ID, api_version)
    reader.i32()  # throttle_time_ms
    return InitProducerIdAnswer(reader.i16(), reader.i64(), reader.i16())


def init_producer_id_refused(correlation_id: int, api_version: int, throttle_time_ms: int) -> bytes:
    """The framed answer to an InitProducerId v0-v5 that is to be sent again later: COORDINATOR_LOAD_IN_PROGRESS.

    Brokers give the same while their block of ids is used up (KIP-730), since every client sends the request again
    after it. Raises UnsupportedVersion.
    """
    if not speaks(INIT_PRODUCER_ID, api_version):
        raise UnsupportedVersion(INIT_PRODUCER_ID, api_version)
    # Header and body became flexible with the same version; neither has a tagged field.
    no_tags = b"\x00" if is_flexible(INIT_PRODUCER_ID, api_version) else b""
    return framed(
        _CORRELATION_ID.pack(correlation_id),
        no_tags,
        _INIT_ANSWER.pack(
            throttle_time_ms, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        ),
        no_tags,
    )


def end_txn_request(buf: Buffer, start: int, end: int) -> EndTxnRequest:
    """The end of a transaction; from v5 on its answer may replace this producer id."""
    _, reader = _request(buf, start, end, END_TXN)
    return EndTxnRequest(reader.string(), reader.i64(), reader.i16(), reader.i8() != 0)


def end_txn_answer(buf: Buffer, start: int, end: int, api_version: int) -> EndTxnAnswer:
    """How a transaction ended, and with which id and epoch the producer goes on."""
    reader = _answer(buf, start, end, END_TXN, api_version)
    reader.i32()  # throttle_time_ms
    error_code = reader.i16()
    if api_version < 5:
        return EndTxnAnswer(error_code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return EndTxnAnswer(error_code, reader.i64(), reader.i16())


# SASL


def sasl_mechanism(buf: Buffer, start: int, end: int) -> str:
    """The mechanism named by a SaslHandshake request. Raises UnsupportedVersion for v0: refuse that first."""
    _, reader = _request(buf, start, end, SASL_HANDSHAKE)
    return reader.string()


def sasl_handshake_answer(buf: Buffer, start: int, end: int, api_version: int) -> int:
    """The error code of a SaslHandshake answer."""
    return _answer(buf, start, end, SASL_HANDSHAKE, api_version).i16()


def sasl_handshake_refused(correlation_id: int, api_version: int) -> bytes:
    """The framed UNSUPPORTED_VERSION answer to a SaslHandshake that we do not let through.

    That is v0, after which raw tokens without Kafka headers would follow. Raises UnsupportedVersion for
    versions after 1, whose answer may have another layout: close the connection then.
    """
    if api_version not in (0, 1):
        raise UnsupportedVersion(SASL_HANDSHAKE, api_version)
    no_mechanisms = _array_count(0, flexible=False)
    return framed(
        _CORRELATION_ID.pack(correlation_id), ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"), no_mechanisms
    )


def sasl_token(buf: Buffer, start: int, end: int) -> bytes:
    """The client's token in a SaslAuthenticate request. It may hold a password: keep it nowhere."""
    _, reader = _request(buf, start, end, SASL_AUTHENTICATE)
    return _bytes(reader)


def sasl_answer(buf: Buffer, start: int, end: int, api_version: int) -> tuple[int, bytes]:
    """(error_code, the broker's token) of a SaslAuthenticate answer."""
    reader = _answer(buf, start, end, SASL_AUTHENTICATE, api_version)
    error_code = reader.i16()
    reader.skip_string()  # error_message
    return error_code, _bytes(reader)


# kafka.protocol

MAX_DECODED_BYTES: Final = 65_536
"""Longest frame given to the codec: it copies, and its time is not linear in what a peer sends."""

_ENDLESS_VARINT = re.compile(rb"[\x80-\xff]{4096}")
# The codec's varint reader has no limit and is quadratic (80 KB of 0xff: 0.13 s). No name in a cold message
# has so many bytes in a row that are not ASCII, but a varint without an end has.

_CODEC_ERRORS: Final = (
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)

Kind = Literal["request", "response"]


@cache
def _classes() -> dict[tuple[int, str], Any]:
    """Message classes by (api_key, kind): the codec's own, and those made of protocol/schemas."""
    with warnings.catch_warnings():
        # It reads its schemas with importlib.resources.read_text, deprecated in Python 3.11 and 3.12 only.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.protocol import admin, api_message, consumer, metadata, producer, sasl

        base: Any = api_message.ApiMessage
        found: dict[tuple[int, str], Any] = {}
        for module in (admin, consumer, metadata, producer, sasl):
            for cls in [getattr(module, name) for name in module.__all__]:
                if getattr(cls, "API_KEY", None) is not None:
                    found[cls.API_KEY, cls.type] = cls
        for api_key, api in SPOKEN.items():
            if (api_key, "request") not in found:
                for kind in ("Request", "Response"):
                    cls = type(base)(api.name + kind, (base,), {}, load_json="pidgate.protocol.schemas")
                    found[api_key, cls.type] = cls
    return found


def message_class(api_key: int, kind: Kind) -> Any:
    """The codec's class of a message; its nested structs are its attributes.

    Give version= at every level and a list for every array: the codec shares one default list between
    instances. Raises UnsupportedVersion for an API that we do not offer.
    """
    if api_key not in SPOKEN:
        raise UnsupportedVersion(api_key, 0)
    return _classes()[api_key, kind]


def decode_request(buf: Buffer, start: int, end: int) -> Any:
    """The body of a request frame as the codec's object. Raises KafkaProtocolError."""
    head = peek_request(buf, start, end)
    return _decode(head.api_key, head.api_version, "request", buf, head.body, end)


def decode_response(api_key: int, api_version: int, buf: Buffer, start: int, end: int) -> Any:
    """The body of a response frame as the codec's object. Raises KafkaProtocolError.

    Not for ApiVersions, whose body may have another version than the request: see api_versions_answer.
    """
    return _decode(
        api_key, api_version, "response", buf, _answer(buf, start, end, api_key, api_version).pos, end
    )


def encode_request(correlation_id: int, client_id: str | None, message: Any) -> bytes:
    """The framed request. A message that does not fit its schema is our mistake: the codec's error passes."""
    message.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(message.encode(header=True, framed=True))


def encode_response(correlation_id: int, message: Any) -> bytes:
    """The framed response. As with a request, what the codec raises, passes."""
    message.with_header(correlation_id=correlation_id)
    return bytes(message.encode(header=True, framed=True))


def _decode(api_key: int, api_version: int, kind: Kind, buf: Buffer, body: int, end: int) -> Any:
    if not speaks(api_key, api_version):
        raise UnsupportedVersion(api_key, api_version)
    if end - body > MAX_DECODED_BYTES:
        raise FrameTooLarge(f"{end - body} bytes for api key {api_key}, {MAX_DECODED_BYTES} at most")
    data = bytes(buf[body:end])
    if _ENDLESS_VARINT.search(data):
        raise MalformedFrame("a varint without an end")
    cls = message_class(api_key, kind)
    flexible = is_flexible(api_key, api_version)
    # Not cls.decode: it forgets the position, without which a string cut short reads as a shorter string.
    read = cls._struct.compiled_decode_from(api_version, compact=flexible, tagged=flexible, data_class=cls)
    try:
        message, pos = read(memoryview(data), 0)
    except _CODEC_ERRORS as error:
        raise MalformedFrame(f"{cls.__name__} v{api_version}: {type(error).__name__}") from error
    if pos != len(data):
        raise MalformedFrame(f"{cls.__name__} v{api_version}: {len(data)} bytes, but its fields take {pos}")
    message._header = None  # the codec leaves the slot unset, and reads it when the message is encoded again
    return message
