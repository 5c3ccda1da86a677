"""Requests of a producer and parsers of their responses, in versions that Kafka 3.9 to 4.4 share.

Produce is v11, the newest version that has topic names and needs AddPartitionsToTxn first. The others are the
last versions without compact types. Parsers shared with the gateway are in messages.py (InitProducerId,
EndTxn, SaslHandshake), produce_answers.py and throttle.py.

Kafka: common/message/*.json; KIP-98, KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from pidgate.protocol import throttle
from pidgate.protocol.frames import Reader, encode_string, framed, uvarint
from pidgate.protocol.messages import END_TXN, INIT_PRODUCER_ID, SASL_AUTHENTICATE, SASL_HANDSHAKE
from pidgate.protocol.produce import PRODUCE
from pidgate.protocol.produce_answers import may_hold_errors
from pidgate.protocol.transaction_parts import ADD_PARTITIONS_TO_TXN

FIND_COORDINATOR: Final = 10

PRODUCE_VERSION: Final = 11
PRODUCE_BY_ID_VERSION: Final = 13
INIT_PRODUCER_ID_VERSION: Final = 1
FIND_COORDINATOR_VERSION: Final = 2
ADD_PARTITIONS_TO_TXN_VERSION: Final = 2
END_TXN_VERSION: Final = 2
SASL_HANDSHAKE_VERSION: Final = 1
SASL_AUTHENTICATE_VERSION: Final = 1

ACKS_ALL: Final = -1

_TRANSACTION: Final = 1  # coordinator key type
_CORRELATION_ID_BYTES: Final = 4
_NO_TAGS: Final = b"\x00"
_ONE: Final = b"\x00\x00\x00\x01"


class ProduceAnswer(NamedTuple):
    error_code: int
    """First error among the partitions; 0 if all were appended."""
    error_message: str | None
    throttle_time_ms: int
    failed: int = 0
    """Number of partitions with an error."""


class Coordinator(NamedTuple):
    """The broker that coordinates a transactional id."""

    error_code: int
    host: str
    port: int


class SaslAuthenticateAnswer(NamedTuple):
    """The broker's response to one token."""

    error_code: int
    reason: str | None
    token: bytes
    """The broker's token."""
    session_lifetime_ms: int
    """Time until re-authentication (KIP-368); 0 is unlimited."""


def produce_request(
    correlation_id: int,
    client_id: str,
    topic: str | bytes,
    batches: Iterable[tuple[int, bytes]],
    *,
    acks: int = ACKS_ALL,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> bytes:
    """Return a Produce of (partition, record batch) pairs, at most one per partition.

    A topic as bytes is a topic id and selects PRODUCE_BY_ID_VERSION.
    """
    by_id = isinstance(topic, bytes)
    entries = [
        (struct.pack(">i", partition), uvarint(len(batch) + 1), batch, _NO_TAGS)
        for partition, batch in batches
    ]
    return framed(
        _head(PRODUCE, PRODUCE_BY_ID_VERSION if by_id else PRODUCE_VERSION, correlation_id, client_id),
        _NO_TAGS,
        encode_string(transactional_id, flexible=True),
        struct.pack(">hi", acks, timeout_ms),
        uvarint(2),
        topic if isinstance(topic, bytes) else encode_string(topic, flexible=True),
        uvarint(len(entries) + 1),
        *(part for entry in entries for part in entry),
        _NO_TAGS,
        _NO_TAGS,
    )


def produce_answer(buf: bytes, version: int = PRODUCE_VERSION) -> ProduceAnswer:
    """Parse a response in either version, without its size prefix. Raises KafkaProtocolError."""
    answer = Reader(buf, 0, len(buf), flexible=True)
    if not may_hold_errors(buf, 0, len(buf), version):
        at = throttle.produce_throttle_at(buf, 0, len(buf), version)
        return ProduceAnswer(0, None, 0 if at is None else throttle.read(buf, at))
    answer.skip(_CORRELATION_ID_BYTES)
    answer.skip_tags()
    error_code, error_message, failed = 0, None, 0
    for _ in range(answer.count(3)):
        if version >= PRODUCE_BY_ID_VERSION:
            answer.skip(16)
        else:
            answer.skip_string()
        for _ in range(answer.count(30)):
            answer.i32()  # partition
            code = answer.i16()
            answer.skip(24)  # base_offset, log_append_time_ms, log_start_offset
            for _ in range(answer.count(4)):  # record_errors
                answer.i32()
                answer.skip_string()
                answer.skip_tags()
            message = answer.nullable_string()
            answer.skip_tags()
            failed += code != 0
            if code and not error_code:
                error_code, error_message = code, message
        answer.skip_tags()
    return ProduceAnswer(error_code, error_message, answer.i32(), failed)


def init_producer_id_request(
    correlation_id: int, client_id: str, transactional_id: str | None = None, timeout_ms: int = 60_000
) -> bytes:
    """Return a request for a new id, or for a transactional id's producer id with a new epoch.

    `timeout_ms` is the transaction timeout.
    """
    return framed(
        _head(INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, correlation_id, client_id),
        encode_string(transactional_id, flexible=False),
        struct.pack(">i", timeout_ms),
    )


def find_coordinator_request(correlation_id: int, client_id: str, transactional_id: str) -> bytes:
    """Return a request for the coordinator of a transactional id."""
    return framed(
        _head(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, correlation_id, client_id),
        encode_string(transactional_id, flexible=False),
        bytes((_TRANSACTION,)),
    )


def find_coordinator_answer(buf: bytes) -> Coordinator:
    """Parse a response without its size prefix. Raises MalformedFrame."""
    answer = _after_throttle(buf)
    error_code = answer.i16()
    answer.skip_string()
    answer.i32()  # node id
    return Coordinator(error_code, answer.string(), answer.i32())


def add_partition_to_txn_request(
    correlation_id: int,
    client_id: str,
    transactional_id: str,
    producer: tuple[int, int],
    topic: str,
    partition: int,
) -> bytes:
    """Return a request that adds a partition to the transaction of a producer (id, epoch)."""
    return framed(
        _head(ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_TO_TXN_VERSION, correlation_id, client_id),
        encode_string(transactional_id, flexible=False),
        struct.pack(">qh", *producer),
        _ONE,
        encode_string(topic, flexible=False),
        _ONE,
        struct.pack(">i", partition),
    )


def add_partition_to_txn_answer(buf: bytes) -> int:
    """Return the partition's error code from a response without its size prefix. Raises MalformedFrame."""
    answer = _after_throttle(buf)
    answer.count(6)
    answer.skip_string()
    answer.count(6)
    answer.i32()
    return answer.i16()


def end_txn_request(
    correlation_id: int, client_id: str, transactional_id: str, producer: tuple[int, int], *, commit: bool
) -> bytes:
    """Return a request that commits or aborts the transaction of a producer (id, epoch)."""
    return framed(
        _head(END_TXN, END_TXN_VERSION, correlation_id, client_id),
        encode_string(transactional_id, flexible=False),
        struct.pack(">qh?", *producer, commit),
    )


def sasl_handshake_request(correlation_id: int, client_id: str, mechanism: str) -> bytes:
    """Return the request that announces the mechanism before the first token."""
    return framed(
        _head(SASL_HANDSHAKE, SASL_HANDSHAKE_VERSION, correlation_id, client_id),
        encode_string(mechanism, flexible=False),
    )


def sasl_authenticate_request(correlation_id: int, client_id: str, token: bytes) -> bytes:
    """Return a request with the token. It may contain a password, so the frame must not be stored."""
    return framed(
        _head(SASL_AUTHENTICATE, SASL_AUTHENTICATE_VERSION, correlation_id, client_id),
        struct.pack(">i", len(token)),
        token,
    )


def sasl_authenticate_answer(buf: bytes) -> SaslAuthenticateAnswer:
    """Parse a response without its size prefix. Raises MalformedFrame."""
    answer = Reader(buf, 0, len(buf))
    answer.skip(_CORRELATION_ID_BYTES)
    error_code, reason = answer.i16(), answer.nullable_string()
    token = bytes(answer.read_bytes(max(answer.length(wide=True), 0)))
    return SaslAuthenticateAnswer(error_code, reason, token, answer.i64())


def throttle_time_ms(buf: bytes) -> int:
    """Return throttle_time_ms of any response except Produce's and SASL's. Raises MalformedFrame."""
    return throttle.read(buf, _CORRELATION_ID_BYTES)


def _head(api_key: int, api_version: int, correlation_id: int, client_id: str) -> bytes:
    return struct.pack(">hhi", api_key, api_version, correlation_id) + encode_string(
        client_id, flexible=False
    )


def _after_throttle(buf: bytes) -> Reader:
    answer = Reader(buf, 0, len(buf))
    answer.skip(_CORRELATION_ID_BYTES + 4)
    return answer
