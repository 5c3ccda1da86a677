"""Produce frames as the model's clients send them, and the refusals that come back, by hand and fast.

Real batches with a real checksum, so that a real broker takes the very frames that the model was played with.
Knows nothing of the model and nothing of the code under test.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import crc32c

PRODUCE = 0
TOPIC = b"model"
TOPIC_ID = bytes(range(1, 17))

NAMED, BY_ID = 9, 13
"""Two versions of Produce: topics by name, and topics by id."""

NOT_LEADER, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, INVALID_PRODUCER_EPOCH = 6, 19, 45, 47

_IN_TRANSACTION = 0x10
"""The attribute of a batch that is part of a transaction."""

Outcome = tuple[int, int]
"""Partition and error code."""

Numbered = tuple[int, int, int, int, int, bytes]
"""Partition, producer id, epoch, base sequence, records, value of each record."""


def produce_frame(
    version: int,
    correlation_id: int,
    client_id: str,
    batches: tuple[Numbered, ...],
    *,
    topic: bytes = TOPIC,
    topic_id: bytes = TOPIC_ID,
    transactional_id: bytes | None = None,
) -> bytes:
    """A whole Produce request of version 9 to 13, with its size prefix, acks=-1."""
    in_transaction = transactional_id is not None
    name = client_id.encode()
    head = struct.pack(">hhih", PRODUCE, version, correlation_id, len(name)) + name
    key = topic_id if version >= BY_ID else _compact(topic)
    data = b"".join(_partition(batch, in_transaction) for batch in batches)
    body = struct.pack(">hi", -1, 30_000) + b"\x02" + key + _uvarint_bytes(len(batches) + 1) + data
    transaction = b"\x00" if transactional_id is None else _compact(transactional_id)
    # Tags: none of the header, then none of the topic and of the request.
    frame = head + b"\x00" + transaction + body + b"\x00\x00"
    return struct.pack(">i", len(frame)) + frame


def read_answer(answer: bytes, version: int) -> tuple[int, list[Outcome], int]:
    """(correlation id, outcomes, throttle_time_ms) of a whole Produce answer without node endpoints."""
    (size, correlation_id) = struct.unpack_from(">ii", answer)
    assert size == len(answer) - 4
    at = 9  # behind the header's tags
    outcomes: list[Outcome] = []
    topics, at = _uvarint(answer, at)
    for _ in range(topics - 1):
        if version >= BY_ID:
            at += 16
        else:
            length, at = _uvarint(answer, at)
            at += length - 1
        partitions, at = _uvarint(answer, at)
        for _ in range(partitions - 1):
            partition, error_code = struct.unpack_from(">ih", answer, at)
            outcomes.append((partition, error_code))
            at += 4 + 2 + 3 * 8
            errors, at = _uvarint(answer, at)
            assert errors <= 1, "single records are not refused here"
            message, at = _uvarint(answer, at)
            at = _skip_tags(answer, at + max(message - 1, 0))
        at = _skip_tags(answer, at)
    (throttle_time_ms,) = struct.unpack_from(">i", answer, at)
    return correlation_id, outcomes, throttle_time_ms


@lru_cache(maxsize=20_000)
def record_batch(
    producer_id: int,
    epoch: int,
    base_sequence: int,
    records: int,
    value: bytes,
    *,
    in_transaction: bool = False,
) -> bytes:
    """A magic 2 batch of that many equal records (KIP-98)."""
    body = b"".join(_record(n, value) for n in range(records))
    tail = struct.pack(
        ">hiqqqhii",
        _IN_TRANSACTION if in_transaction else 0,
        records - 1,
        1_700_000_000_000,
        1_700_000_000_000,
        producer_id,
        epoch,
        base_sequence,
        records,
    )
    checksum = crc32c.crc32c(tail + body)
    return struct.pack(">qiibI", 0, 9 + len(tail) + len(body), -1, 2, checksum) + tail + body


def _partition(numbered: Numbered, in_transaction: bool) -> bytes:
    partition, *place = numbered
    batch = record_batch(*place, in_transaction=in_transaction)
    return struct.pack(">i", partition) + _compact(batch) + b"\x00"


def _record(n: int, value: bytes) -> bytes:
    fields = b"\x00" + _zigzag(0) + _zigzag(n) + _zigzag(-1) + _zigzag(len(value)) + value + _zigzag(0)
    return _zigzag(len(fields)) + fields


def _zigzag(value: int) -> bytes:
    return _uvarint_bytes(value << 1 if value >= 0 else (-value << 1) - 1)


def _compact(raw: bytes) -> bytes:
    return _uvarint_bytes(len(raw) + 1) + raw


def _uvarint_bytes(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _uvarint(buf: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buf[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _skip_tags(buf: bytes, at: int) -> int:
    tags, at = _uvarint(buf, at)
    for _ in range(tags):
        _, at = _uvarint(buf, at)
        length, at = _uvarint(buf, at)
        at += length
    return at
