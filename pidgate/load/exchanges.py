"""Exchanges of a client with brokers, without I/O: generators that yield requests and receive the answers' frames.

`Connection.run` (asyncio) and `BlockingConnection.run` drive them. Knows no addresses and no time.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from pidgate.load.plan import Login
from pidgate.protocol import codec, logins, messages, producer_requests
from pidgate.protocol.frames import read_uvarint, skip_tags
from pidgate.protocol.logins import Build
from pidgate.protocol.produce import BATCH_HEADER_BYTES
from pidgate.protocol.producer_requests import ACKS_ALL, ProduceAnswer
from pidgate.version import version as pidgate_version

T = TypeVar("T")
Exchange = Generator[Build, bytes, T]
FETCH: Final = 1
FETCH_VERSION: Final = 18


class ProducerIdAnswer(NamedTuple):
    error_code: int
    producer_id: int
    producer_epoch: int
    throttle_time_ms: int


def hello(login: Login | None = None) -> Exchange[None]:
    """Begin like all clients: ApiVersions, then SASL with a login. Raises LoginRefused, KafkaProtocolError."""
    yield lambda n, client_id: messages.api_versions_request(n, client_id, pidgate_version())
    if login is not None:
        yield from log_in(login)


def log_in(login: Login) -> Exchange[None]:
    """SaslHandshake and SaslAuthenticate. Raises LoginRefused, KafkaProtocolError."""
    nonce = secrets.token_urlsafe(24)
    yield from logins.log_in(login.mechanism, login.user, login.password, nonce)


def init_producer_id(transactional_id: str | None = None) -> Exchange[ProducerIdAnswer]:
    """Ask for a producer id once. Raises KafkaProtocolError."""
    frame = yield lambda n, client_id: producer_requests.init_producer_id_request(
        n, client_id, transactional_id
    )
    answer = messages.init_producer_id_answer(
        frame, 0, len(frame), producer_requests.INIT_PRODUCER_ID_VERSION
    )
    return ProducerIdAnswer(*answer, producer_requests.throttle_time_ms(frame))


def produce(
    topic: str | bytes,
    batches: Sequence[tuple[int, bytes]],
    *,
    acks: int = ACKS_ALL,
    transactional_id: str | None = None,
) -> Exchange[ProduceAnswer]:
    """Send batches as (partition, record batch) to a topic or topic id. Raises KafkaProtocolError."""
    frame = yield lambda n, client_id: producer_requests.produce_request(
        n, client_id, topic, batches, acks=acks, transactional_id=transactional_id
    )
    by_id = isinstance(topic, bytes)
    version = producer_requests.PRODUCE_BY_ID_VERSION if by_id else producer_requests.PRODUCE_VERSION
    return producer_requests.produce_answer(frame, version)


class Fetched(NamedTuple):
    """One partition of a Fetch answer, in whole batches."""

    records: int
    next_offset: int
    """Behind the last whole batch; -1 without one."""
    high_watermark: int


class FetchAnswer(NamedTuple):
    """`error_code`: the first error of the answer or of a partition."""

    error_code: int
    throttle_time_ms: int
    partitions: Mapping[int, Fetched]


def fetch(
    topic_id: bytes, offsets: Mapping[int, int], *, partition_max_bytes: int = 1 << 20
) -> Exchange[FetchAnswer]:
    """Fetch partitions of a topic from these offsets, without a fetch session. Raises KafkaProtocolError.

    1 MiB is the default of every client's max.partition.fetch.bytes.
    """
    places = [
        {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": partition_max_bytes,
        }
        for partition, offset in offsets.items()
    ]
    body = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50_000_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": UUID(bytes=topic_id), "partitions": places}],
        "rack_id": "",
    }
    message = message_of(codec.message_class(FETCH, "request"), FETCH_VERSION, body)
    return read_fetch_answer((yield lambda n, client_id: codec.encode_request(n, client_id, message)))


def read_fetch_answer(frame: bytes) -> FetchAnswer:
    """Read a Fetch v18 answer without its size prefix; the codec would copy each batch of it."""
    throttle_time_ms, first_error = struct.unpack_from(">ih", frame, 5)
    found: dict[int, Fetched] = {}
    topics, at = read_uvarint(frame, 15)
    for _ in range(topics - 1):
        partitions, at = read_uvarint(frame, at + 16)
        for _ in range(partitions - 1):
            partition, error_code, high_watermark = struct.unpack_from(">ihq", frame, at)
            first_error = first_error or error_code
            aborted, at = read_uvarint(frame, at + 30)
            at += max(0, aborted - 1) * 17
            size, at = read_uvarint(frame, at + 4)
            end = at + max(0, size - 1)
            found[partition] = Fetched(*_whole_batches(frame, at, end), high_watermark)
            at = skip_tags(frame, end, len(frame))
        at = skip_tags(frame, at, len(frame))
    return FetchAnswer(first_error, throttle_time_ms, found)


def _whole_batches(frame: bytes, at: int, end: int) -> tuple[int, int]:
    count, next_offset = 0, -1
    while at + BATCH_HEADER_BYTES <= end:
        base_offset, length = struct.unpack_from(">qi", frame, at)
        if at + 12 + length > end:
            break
        in_batch = struct.unpack_from(">i", frame, at + 57)[0]
        count += in_batch
        next_offset = base_offset + in_batch
        at += 12 + length
    return count, next_offset


def call(api_key: int, api_version: int, body: Mapping[str, Any] | None = None) -> Exchange[Any]:
    """Send any request through the cold codec; return the decoded answer. Raises KafkaProtocolError."""
    message = message_of(codec.message_class(api_key, "request"), api_version, body or {})
    frame = yield lambda n, client_id: codec.encode_request(n, client_id, message)
    return codec.decode_response(api_key, api_version, frame, 0, len(frame))


def message_of(cls: Any, api_version: int, body: Mapping[str, Any]) -> Any:
    """Return a message or struct of the codec, without fields that this version does not have."""
    fields: dict[str, Any] = {}
    for field in cls._struct._fields:
        if not field.for_version_q(api_version):
            continue
        if field.name not in body:
            if field.is_struct_array():
                fields[field.name] = []
                continue
            if (
                not field.is_struct()
                or field.nullable_for_version_q(api_version)
                or field.tagged_field_q(api_version)
            ):
                continue
        value = body.get(field.name, {})
        if value is not None and field.is_struct_array():
            value = [message_of(getattr(cls, field.type_str), api_version, element) for element in value]
        elif value is not None and field.is_struct():
            value = message_of(getattr(cls, field.type_str), api_version, value)
        fields[field.name] = value
    return cls(version=api_version, **fields)
