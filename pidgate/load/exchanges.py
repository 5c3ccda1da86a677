"""Exchanges of a client with brokers, without I/O: generators that yield requests and take their answers' frames.

Driven by `Connection.run` (asyncio) and `BlockingConnection.run`, so that both shapes of a connection share each of
them. Knows no addresses and no time.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pidgate.load.plan import Login
from pidgate.protocol import codec, logins, messages, producer_requests
from pidgate.protocol.logins import Build
from pidgate.protocol.producer_requests import ACKS_ALL, ProduceAnswer
from pidgate.version import version as pidgate_version

T = TypeVar("T")
Exchange = Generator[Build, bytes, T]


class ProducerIdAnswer(NamedTuple):
    error_code: int
    producer_id: int
    producer_epoch: int
    throttle_time_ms: int


def hello(login: Login | None = None) -> Exchange[None]:
    """Begin as every client does: ApiVersions, then SASL with a login. Raises LoginRefused, KafkaProtocolError."""
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


def call(api_key: int, api_version: int, body: Mapping[str, Any] | None = None) -> Exchange[Any]:
    """Send any request through the cold codec; return the decoded answer. Raises KafkaProtocolError."""
    message = message_of(codec.message_class(api_key, "request"), api_version, body or {})
    frame = yield lambda n, client_id: codec.encode_request(n, client_id, message)
    return codec.decode_response(api_key, api_version, frame, 0, len(frame))


def message_of(cls: Any, api_version: int, body: Mapping[str, Any]) -> Any:
    """Return a message or struct of the codec; fields that this version does not have are left out."""
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
