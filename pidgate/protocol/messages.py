"""Messages outside the hot path, parsed and written by hand with frames.Reader. PURE.

Every connection exchanges them, some before authentication, so they must not load the codec (codec.py, 0.1 s
of imports). The ApiVersions response is spliced, which keeps tagged fields of newer brokers.

Kafka: common/message/*.json; KIP-482 (tagged fields), KIP-511 (ApiVersions), KIP-152 and KIP-368 (SASL).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from pidgate.protocol.errors import ErrorCode, FrameTooLarge, UnsupportedVersion
from pidgate.protocol.frames import Buffer, Reader, array_count, encode_string, framed
from pidgate.protocol.headers import RequestHead, is_flexible, response_header_version
from pidgate.protocol.versions import SPOKEN, cap_range, speaks
from pidgate.protocol.work import MOST_API_RANGES

METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
END_TXN: Final = 26
SASL_AUTHENTICATE: Final = 36

CLIENT_ID: Final = "pidgate"
"""Client id of the gateway's own requests, and its software name."""

API_VERSIONS_PROBE_VERSION: Final = 3
"""Version of api_versions_request, supported by every broker since Kafka 2.4."""
FIRST_WITH_MEANT_NODE: Final = 5
METADATA_PROBE_VERSION: Final = 12
"""Version of metadata_request, the newest that Kafka 3.9 and 4.x share."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
_MOST_REMEMBERED_BYTES: Final = 16_384
"""Longest ApiVersions response that is cached; Kafka 4.3 sends about 600 bytes."""
_RANGE: Final = struct.Struct(">hhh")
_REQUEST_HEAD: Final = struct.Struct(">hhi")
_CORRELATION_ID: Final = struct.Struct(">i")
_NO_MEANT_NODE: Final = b"\x00" + (-1).to_bytes(
    4, "big", signed=True
)  # null cluster id and the default node id
_INIT_ANSWER: Final = struct.Struct(">ihqh")
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Names and versions of client software that brokers accept (ApiVersionsRequest)."""
_LONGEST_TOLD: Final = 255
"""Characters of a software name, its version or a cluster id that are told to a broker."""
_FINALIZED_FEATURES_EPOCH: Final = 1
"""Tag of a field that changes with each record of the cluster's metadata."""


class Question(NamedTuple):
    """A request before a login that a broker answers alike for all clients, apart from `named`."""

    frame: bytes
    api_key: int
    api_version: int
    named: bytes = b""
    """A target or a software name that the broker may refuse; empty in most requests."""

    @property
    def without_names(self) -> Question:
        """The same question of the gateway's own, which no broker refuses."""
        if not self.named:
            return self
        frame = api_versions_request(1, CLIENT_ID, api_version=self.api_version)
        return Question(frame, self.api_key, self.api_version)


class InitProducerIdRequest(NamedTuple):
    transactional_id: str | None
    producer_id: int
    """The id whose epoch is to be bumped (v3+, KIP-360), or -1."""
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
    """v5+ (KIP-890): the id to continue with, a new one if the old id's epochs are exhausted. -1 before v5.
    """
    producer_epoch: int


def _request(buf: Buffer, head: RequestHead, api_key: int) -> tuple[int, Reader]:
    """Return (api_version, reader at the body) of a request. Raises if its API or version does not match."""
    if head.api_key != api_key or not speaks(api_key, head.api_version):
        raise UnsupportedVersion(head.api_key, head.api_version)
    return head.api_version, Reader(buf, head.body, head.end, flexible=is_flexible(api_key, head.api_version))


def answer_reader(buf: Buffer, start: int, end: int, api_key: int, api_version: int) -> Reader:
    """Return a reader at the body of the response to this API and version. Raises UnsupportedVersion."""
    if not speaks(api_key, api_version):
        raise UnsupportedVersion(api_key, api_version)
    reader = Reader(buf, start, end, flexible=response_header_version(api_key, api_version) == 1)
    reader.i32()  # the correlation id
    reader.skip_tags()
    reader.flexible = is_flexible(api_key, api_version)
    return reader


def _bytes(reader: Reader) -> bytes:
    """Read a bytes field; null reads as empty."""
    return reader.read_bytes(max(reader.length(wide=True), 0))


# ApiVersions


def cap_api_versions(buf: Buffer, start: int, end: int, request_version: int) -> bytes:
    """Return the framed ApiVersions response with each range limited to the offered versions and APIs.

    Everything else is unchanged: throttle_time_ms, the features, known and unknown tagged fields. A broker
    that does not support the request's version responds in v0 with UNSUPPORTED_VERSION (KIP-511). Raises
    FrameTooLarge above MOST_API_RANGES.
    """
    head_end = answer_reader(buf, start, end, API_VERSIONS, request_version).pos
    body = bytes(buf[head_end:end])
    # Brokers send the same response to every client until their features change.
    cut = _cut_before if len(body) <= _MOST_REMEMBERED_BYTES else _cut
    return framed(buf[start:head_end], cut(body, request_version))


def _cut(body: bytes, request_version: int) -> bytes:
    reader = Reader(body, 0, len(body), flexible=False)
    body_version = 0 if reader.i16() == ErrorCode.UNSUPPORTED_VERSION else request_version
    reader.flexible = is_flexible(API_VERSIONS, body_version)
    head_end = reader.pos
    kept: list[bytes] = []
    for _ in range(_range_count(reader)):
        at = reader.skip(_RANGE.size)
        api_key, min_version, max_version = _RANGE.unpack_from(body, at)
        reader.skip_tags()
        offered = cap_range(api_key, min_version, max_version)
        if offered is not None:
            kept.append(_RANGE.pack(api_key, *offered) + body[at + _RANGE.size : reader.pos])
    tail = reader.pos
    if body_version >= 1:
        reader.i32()  # throttle_time_ms
    reader.skip_tags()
    reader.finish()
    kept_count = array_count(len(kept), flexible=reader.flexible)
    return b"".join((body[:head_end], kept_count, *kept, body[tail:]))


def _range_count(reader: Reader) -> int:
    count = reader.count(_RANGE.size)
    if count > MOST_API_RANGES:
        raise FrameTooLarge(f"an ApiVersions response with {count} APIs, the limit is {MOST_API_RANGES}")
    return count


_cut_before = lru_cache(maxsize=16)(_cut)


def too_new_api_versions(correlation_id: int) -> bytes:
    """Return the framed response to an ApiVersions request of an unknown version: v0 with code 35 (KIP-511).

    It lists the supported versions of ApiVersions, so that the client can retry.
    """
    api = SPOKEN[API_VERSIONS]
    return framed(
        _CORRELATION_ID.pack(correlation_id),
        ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"),
        array_count(1, flexible=False),
        _RANGE.pack(API_VERSIONS, api.min_version, api.max_version),
    )


def client_software(buf: Buffer, head: RequestHead) -> tuple[str, str] | None:
    """Return (client_software_name, client_software_version) of an ApiVersions request; None before v3 (KIP-511)."""
    api_version, reader = _request(buf, head, API_VERSIONS)
    if api_version < 3:
        return None
    return reader.string(), reader.string()


def _meant_node(buf: Buffer, head: RequestHead) -> tuple[str | None, int]:
    """Return ClusterId and NodeId of an ApiVersions request (FIRST_WITH_MEANT_NODE or later)."""
    _, reader = _request(buf, head, API_VERSIONS)
    reader.skip_string()  # client_software_name
    reader.skip_string()  # client_software_version
    return reader.nullable_string(), reader.i32()


def names_node(buf: Buffer, head: RequestHead) -> bool:
    """Return whether an ApiVersions request (FIRST_WITH_MEANT_NODE or later) has a target node."""
    return _meant_node(buf, head)[1] >= 0


def api_versions_question(buf: Buffer, head: RequestHead, *, passes_target: bool) -> Question:
    """Return an ApiVersions request as the question to a broker, without unknown tagged fields.

    `passes_target` False: without target cluster and node.
    """
    api_version = head.api_version
    software = client_software(buf, head)
    name, version = software or (CLIENT_ID, "unknown")
    named = b"" if _SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version) else b"software"
    target = _NO_MEANT_NODE
    if passes_target and api_version >= FIRST_WITH_MEANT_NODE:
        cluster_id, node_id = _meant_node(buf, head)
        cut_id = None if cluster_id is None else cluster_id[:_LONGEST_TOLD]
        target = encode_string(cut_id, flexible=True) + node_id.to_bytes(4, "big", signed=True)
    if target != _NO_MEANT_NODE:
        named += target
    frame = api_versions_request(
        1,
        CLIENT_ID,
        version[:_LONGEST_TOLD],
        name=name[:_LONGEST_TOLD],
        api_version=api_version,
        target=target,
    )
    return Question(frame, API_VERSIONS, api_version, named)


def question_error(answer: bytes) -> int:
    """Return the error code of the answer to a Question. Raises TruncatedFrame."""
    return Reader(answer, _CORRELATION_ID.size, len(answer)).i16()


def check_answer(question: Question, answer: bytes) -> None:
    """Raise KafkaProtocolError if a broker's answer to a question cannot be passed on to clients."""
    if question.api_key == API_VERSIONS:
        api_versions_from(answer, 0, question.api_version)
    else:
        sasl_handshake_answer(answer, 0, len(answer), question.api_version)


def api_versions_from(answer: bytes, correlation_id: int, api_version: int) -> bytes:
    """Return the framed response to a client from a broker's answer to a Question: see cap_api_versions."""
    own = _CORRELATION_ID.pack(correlation_id) + answer[_CORRELATION_ID.size :]
    return cap_api_versions(own, 0, len(own), api_version)


def offer_of(answer: bytes, api_version: int) -> tuple[bytes, ...]:
    """Return ranges and features of an ApiVersions response, in a form that is equal for equal offers."""
    reader = Reader(answer, _CORRELATION_ID.size, len(answer))
    body_version = 0 if reader.i16() == ErrorCode.UNSUPPORTED_VERSION else api_version
    reader.flexible = is_flexible(API_VERSIONS, body_version)
    for _ in range(_range_count(reader)):
        reader.skip(_RANGE.size)
        reader.skip_tags()
    ranges = answer[_CORRELATION_ID.size : reader.pos]
    if not reader.flexible:
        return (ranges,)
    reader.i32()  # throttle_time_ms
    features = [answer[at:end] for tag, _, at, end in reader.tags() if tag != _FINALIZED_FEATURES_EPOCH]
    return ranges, *features


def without_meant_node(buf: Buffer, head: RequestHead) -> bytes:
    """Return an ApiVersions request (FIRST_WITH_MEANT_NODE or later) without target cluster and node.

    A broker that is not the target node responds with REBOOTSTRAP_REQUIRED (KIP-1242).
    """
    _, reader = _request(buf, head, API_VERSIONS)
    reader.skip_string()  # client_software_name
    reader.skip_string()  # client_software_version
    at = reader.pos
    reader.skip_string()  # ClusterId
    reader.i32()  # NodeId
    return framed(buf[head.start : at], _NO_MEANT_NODE, buf[reader.pos : head.end])


def api_versions_request(
    correlation_id: int,
    client_id: str,
    software_version: str = "unknown",
    *,
    name: str = CLIENT_ID,
    api_version: int = API_VERSIONS_PROBE_VERSION,
    target: bytes = _NO_MEANT_NODE,
) -> bytes:
    """Return a framed ApiVersions request from the gateway.

    Kafka rejects a software version with characters other than letters, digits, dots and dashes.
    """
    head = _REQUEST_HEAD.pack(API_VERSIONS, api_version, correlation_id)
    of_client = encode_string(client_id, flexible=False)
    if not is_flexible(API_VERSIONS, api_version):
        return framed(head, of_client)
    return framed(
        head,
        of_client,
        b"\x00",
        encode_string(name, flexible=True),
        encode_string(software_version, flexible=True),
        target if api_version >= FIRST_WITH_MEANT_NODE else b"",
        b"\x00",
    )


def metadata_request(
    correlation_id: int, client_id: str, topics: Sequence[str] = (), *, asks_rights: bool = False
) -> bytes:
    """Return a framed Metadata request for the brokers and at most a few dozen topics.

    In METADATA_PROBE_VERSION, without topic creation. `asks_rights`: on these topics.
    """
    create_topics, topic_operations, no_tags = b"\x00", bytes((asks_rights,)), b"\x00"
    asked = b"".join(bytes(16) + encode_string(name, flexible=True) + no_tags for name in topics)
    return framed(
        _REQUEST_HEAD.pack(METADATA, METADATA_PROBE_VERSION, correlation_id),
        encode_string(client_id, flexible=False),
        no_tags,
        array_count(len(topics), flexible=True) + asked + create_topics + topic_operations + no_tags,
    )


# Producer ids


def init_producer_id_request(buf: Buffer, head: RequestHead) -> InitProducerIdRequest:
    """Parse an InitProducerId: by transactional id, or (v3+) with an id whose epoch is to be bumped."""
    api_version, reader = _request(buf, head, INIT_PRODUCER_ID)
    transactional_id = reader.nullable_string()
    reader.i32()  # transaction_timeout_ms
    if api_version < 3:
        return InitProducerIdRequest(transactional_id, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return InitProducerIdRequest(transactional_id, reader.i64(), reader.i16())


def init_producer_id_answer(buf: Buffer, start: int, end: int, api_version: int) -> InitProducerIdAnswer:
    """Parse an InitProducerId response; with an error code the id is -1."""
    reader = answer_reader(buf, start, end, INIT_PRODUCER_ID, api_version)
    reader.i32()  # throttle_time_ms
    return InitProducerIdAnswer(reader.i16(), reader.i64(), reader.i16())


def init_producer_id_refused(correlation_id: int, api_version: int, throttle_time_ms: int) -> bytes:
    """Return the framed InitProducerId v0-v5 response COORDINATOR_LOAD_IN_PROGRESS, which clients retry.

    Brokers send the same while their block of ids is used up (KIP-730). Raises UnsupportedVersion.
    """
    if not speaks(INIT_PRODUCER_ID, api_version):
        raise UnsupportedVersion(INIT_PRODUCER_ID, api_version)
    # Header and body became flexible in the same version, and neither has tagged fields.
    no_tags = b"\x00" if is_flexible(INIT_PRODUCER_ID, api_version) else b""
    return framed(
        _CORRELATION_ID.pack(correlation_id),
        no_tags,
        _INIT_ANSWER.pack(
            throttle_time_ms, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        ),
        no_tags,
    )


def end_txn_request(buf: Buffer, head: RequestHead) -> EndTxnRequest:
    """Parse an EndTxn request; from v5 its response may replace the producer id."""
    _, reader = _request(buf, head, END_TXN)
    return EndTxnRequest(reader.string(), reader.i64(), reader.i16(), reader.i8() != 0)


def end_txn_answer(buf: Buffer, start: int, end: int, api_version: int) -> EndTxnAnswer:
    """Parse an EndTxn response: the outcome and the id and epoch to continue with."""
    reader = answer_reader(buf, start, end, END_TXN, api_version)
    reader.i32()  # throttle_time_ms
    error_code = reader.i16()
    if api_version < 5:
        return EndTxnAnswer(error_code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return EndTxnAnswer(error_code, reader.i64(), reader.i16())


# SASL


def sasl_mechanism(buf: Buffer, head: RequestHead) -> str:
    """Read the mechanism of a SaslHandshake request.

    Raises UnsupportedVersion for v0, which must be refused first.
    """
    _, reader = _request(buf, head, SASL_HANDSHAKE)
    return reader.string()


class SaslHandshakeAnswer(NamedTuple):
    """The outcome of a SaslHandshake and the broker's mechanisms."""

    error_code: int
    mechanisms: tuple[str, ...]


def sasl_handshake_answer(buf: Buffer, start: int, end: int, api_version: int) -> SaslHandshakeAnswer:
    """Read a SaslHandshake answer."""
    reader = answer_reader(buf, start, end, SASL_HANDSHAKE, api_version)
    return SaslHandshakeAnswer(reader.i16(), tuple(reader.string() for _ in range(reader.count(2))))


def sasl_handshake_from(answer: bytes, correlation_id: int, mechanism: str) -> tuple[bytes, int]:
    """Return the framed SaslHandshake v1 response to a client, and its error code.

    `answer` is the broker's to a handshake with any mechanism.
    """
    error_code, mechanisms = sasl_handshake_answer(answer, 0, len(answer), 1)
    if error_code in (0, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
        error_code = 0 if mechanism in mechanisms else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    body = answer[_CORRELATION_ID.size + 2 :]
    own = framed(_CORRELATION_ID.pack(correlation_id), error_code.to_bytes(2, "big", signed=True), body)
    return own, error_code


def sasl_handshake_refused(correlation_id: int, api_version: int) -> bytes:
    """Return the framed UNSUPPORTED_VERSION response to a SaslHandshake that is not forwarded.

    For v0, after which raw tokens without Kafka headers would follow. Raises UnsupportedVersion above v1,
    whose response layout may differ; close the connection then.
    """
    if api_version not in (0, 1):
        raise UnsupportedVersion(SASL_HANDSHAKE, api_version)
    no_mechanisms = array_count(0, flexible=False)
    return framed(
        _CORRELATION_ID.pack(correlation_id), ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"), no_mechanisms
    )


def sasl_token(buf: Buffer, head: RequestHead) -> bytes:
    """Return the client's token in a SaslAuthenticate request.

    It may contain a password and must not be stored.
    """
    _, reader = _request(buf, head, SASL_AUTHENTICATE)
    return _bytes(reader)


def sasl_answer(buf: Buffer, start: int, end: int, api_version: int) -> tuple[int, bytes]:
    """Return (error_code, broker's token) of a SaslAuthenticate response."""
    reader = answer_reader(buf, start, end, SASL_AUTHENTICATE, api_version)
    error_code = reader.i16()
    reader.skip_string()  # error_message
    return error_code, _bytes(reader)
