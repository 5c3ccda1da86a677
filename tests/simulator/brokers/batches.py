"""Record batches as a broker looks at them: the head of a magic 2 batch (KIP-98), its checksum, its values.

Layout: org.apache.kafka.common.record.DefaultRecordBatch. What is wrong with a batch is said as a broker says it:
ProduceRequest.validateRecords, DefaultRecordBatch.ensureValid, LogValidator.validateBatch. Pure.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import crc32c
from kio.schema.errors import ErrorCode

from pidgate.protocol.produce import TRANSACTIONAL

NO_PRODUCER_ID: Final = -1
SEQUENCES: Final = 1 << 31
"""DefaultRecordBatch.incrementSequence: after Integer.MAX_VALUE comes 0."""
HEAD_BYTES: Final = 61

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
_CONTROL: Final = 0x20
_COMPRESSION: Final = 0x07
_COVERED_FROM: Final = 21
"""The checksum covers what stands behind it."""
_LENGTH_OVERHEAD: Final = 12


class BatchHead(NamedTuple):
    """The fields of a batch's head that a broker asks for."""

    producer_id: int
    epoch: int
    base_sequence: int
    records: int
    last_offset_delta: int
    attributes: int
    max_timestamp_ms: int
    checksum: int

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record: DefaultRecordBatch.lastSequence."""
        return (self.base_sequence + self.last_offset_delta) % SEQUENCES

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0


def read_batch(raw: bytes | None) -> BatchHead | ErrorCode:
    """Return the head of what a Produce request holds for one partition; ProduceRequest.validateRecords.

    An error for what is not exactly one batch of magic 2. The batch itself is judged by `fault_of`.
    """
    if not raw:
        return ErrorCode.invalid_record
    if len(raw) < HEAD_BYTES:
        return ErrorCode.corrupt_message
    (_, length, _, magic, checksum, attributes, last_delta, _, max_timestamp_ms, *numbers) = (
        _HEAD.unpack_from(raw)
    )
    if magic != 2:
        return ErrorCode.invalid_record
    if length + _LENGTH_OVERHEAD != len(raw):
        # Longer: another batch stands behind it. Shorter: not even one is whole.
        return ErrorCode.invalid_record
    producer_id, epoch, base_sequence, count = numbers
    return BatchHead(
        producer_id, epoch, base_sequence, count, last_delta, attributes, max_timestamp_ms, checksum
    )


def fault_of(raw: bytes, head: BatchHead) -> ErrorCode:
    """Return what is wrong with a batch: DefaultRecordBatch.ensureValid, LogValidator.validateBatch."""
    if crc32c.crc32c(memoryview(raw)[_COVERED_FROM:]) != head.checksum:
        return ErrorCode.corrupt_message
    if head.records <= 0 or head.last_offset_delta + 1 != head.records or head.attributes & _CONTROL:
        return ErrorCode.invalid_record
    if head.producer_id >= 0 and head.base_sequence < 0:
        return ErrorCode.invalid_record
    return ErrorCode.none


def stamped(raw: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Return the batch as it stands in the log: with its offset and the epoch of the leader that took it."""
    return struct.pack(">qii", base_offset, len(raw) - _LENGTH_OVERHEAD, leader_epoch) + raw[16:]


def marker_batch(
    producer_id: int, epoch: int, coordinator_epoch: int, timestamp_ms: int, *, commit: bool
) -> bytes:
    """Return the control batch that ends a transaction: MemoryRecords.withEndTransactionMarker."""
    key, value = struct.pack(">hh", 0, 1 if commit else 0), struct.pack(">hi", 0, coordinator_epoch)
    body = bytes((0, 0, 0, len(key) << 1)) + key + bytes((len(value) << 1,)) + value + b"\x00"
    record = bytes((len(body) << 1,)) + body
    covered = struct.pack(
        ">hiqqqhii", TRANSACTIONAL | _CONTROL, 0, timestamp_ms, timestamp_ms, producer_id, epoch, -1, 1
    )
    checksum = crc32c.crc32c(covered + record)
    length = 9 + len(covered) + len(record)
    return struct.pack(">qiibI", 0, length, 0, 2, checksum) + covered + record


def values(raw: bytes) -> list[bytes | None]:
    """Return the values of the records of an uncompressed batch. Raises ValueError for a compressed one."""
    if raw[22] & _COMPRESSION:
        raise ValueError("the records are compressed")
    (count,) = struct.unpack_from(">i", raw, 57)
    found: list[bytes | None] = []
    at = HEAD_BYTES
    for _ in range(count):
        length, at = _varint(raw, at)
        end = at + length
        at += 1  # attributes
        for _ in range(2):  # timestamp delta, offset delta
            _, at = _varint(raw, at)
        key_bytes, at = _varint(raw, at)
        value_bytes, at = _varint(raw, at + max(key_bytes, 0))
        found.append(None if value_bytes < 0 else raw[at : at + value_bytes])
        at = end
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
