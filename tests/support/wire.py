"""Produce frames as clients send them, by hand and fast: real batches with a real checksum.

Knows nothing of the code under test.
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

NOT_ENOUGH_REPLICAS = 19

_IN_TRANSACTION = 0x10
"""The attribute of a batch that is part of a transaction."""

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
    acks: int = -1,
) -> bytes:
    """A whole Produce request of version 9 to 13, with its size prefix."""
    in_transaction = transactional_id is not None
    name = client_id.encode()
    head = struct.pack(">hhih", PRODUCE, version, correlation_id, len(name)) + name
    key = topic_id if version >= BY_ID else _compact(topic)
    data = b"".join(_partition(batch, in_transaction) for batch in batches)
    body = struct.pack(">hi", acks, 30_000) + b"\x02" + key + _uvarint_bytes(len(batches) + 1) + data
    transaction = b"\x00" if transactional_id is None else _compact(transactional_id)
    # Tags: none of the header, then none of the topic and of the request.
    frame = head + b"\x00" + transaction + body + b"\x00\x00"
    return struct.pack(">i", len(frame)) + frame


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
    fields = b"\x00" + zigzag(0) + zigzag(n) + zigzag(-1) + zigzag(len(value)) + value + zigzag(0)
    return zigzag(len(fields)) + fields


def zigzag(value: int) -> bytes:
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
