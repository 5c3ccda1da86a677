"""Record batches (magic 2, KIP-98): records are encoded once, the head for each send.

Uncompressed, without keys and headers. Layout: org.apache.kafka.common.record.DefaultRecordBatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from pidgate.protocol.crc32c import Follow, crc32c
from pidgate.protocol.frames import uvarint
from pidgate.protocol.produce import LENGTH_OVERHEAD, TRANSACTIONAL

MAX_SEQUENCE: Final = 0x7FFFFFFF

# Base offset, batch length, partition leader epoch, magic, checksum of everything that follows.
_HEAD: Final = Struct(">qiibI")
# Attributes, last offset delta, base and max timestamp, producer id, producer epoch, base sequence, records.
_COVERED: Final = Struct(">hiqqqhii")
_MAGIC: Final = 2
_NO_LEADER_EPOCH: Final = -1


class RecordBatch:
    """Records that can be sent many times as one batch."""

    __slots__ = ("_checksum", "_follow", "_records", "count")

    def __init__(self, values: Sequence[bytes]) -> None:
        """Encode the records. Raises ValueError without values.

        All records get the timestamp of their batch. Encoding takes milliseconds, more for large records;
        each send then takes microseconds.
        """
        self.count = len(values)
        self._records = _records(values)
        self._checksum = crc32c(self._records)
        self._follow = Follow(len(self._records))

    def stamped(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        timestamp_ms: int,
        *,
        is_transactional: bool = False,
    ) -> bytes:
        """Return the batch for this producer and sequence.

        Sequences wrap after MAX_SEQUENCE: see next_sequence.
        """
        attributes = TRANSACTIONAL if is_transactional else 0
        covered = _covered(attributes, self.count, timestamp_ms, (producer_id, producer_epoch, base_sequence))
        checksum = self._follow.after(crc32c(covered)) ^ self._checksum
        return _whole(checksum, covered, self._records)

    def next_sequence(self, base_sequence: int) -> int:
        """Return the base sequence of the following batch."""
        return base_sequence + self.count & MAX_SEQUENCE


def record_batch(
    values: Sequence[bytes], producer_id: int, producer_epoch: int, base_sequence: int, timestamp_ms: int
) -> bytes:
    """Return a batch for a single send. Raises ValueError without values."""
    records = _records(values)
    covered = _covered(0, len(values), timestamp_ms, (producer_id, producer_epoch, base_sequence))
    return _whole(crc32c(covered + records), covered, records)


def _whole(checksum: int, covered: bytes, records: bytes) -> bytes:
    length = _HEAD.size + len(covered) + len(records) - LENGTH_OVERHEAD
    return b"".join((_HEAD.pack(0, length, _NO_LEADER_EPOCH, _MAGIC, checksum), covered, records))


def _covered(attributes: int, count: int, timestamp_ms: int, place: tuple[int, int, int]) -> bytes:
    """Encode the checksummed head. `place` is (producer id, producer epoch, base sequence)."""
    return _COVERED.pack(attributes, count - 1, timestamp_ms, timestamp_ms, *place, count)


def _records(values: Sequence[bytes]) -> bytes:
    if not values:
        raise ValueError("a batch without records")
    return b"".join(_record(delta, value) for delta, value in enumerate(values))


def _record(delta: int, value: bytes) -> bytes:
    # Attributes, timestamp delta, offset delta, no key, value, no headers.
    body = b"\x00\x00" + zigzag(delta) + b"\x01" + zigzag(len(value)) + value + b"\x00"
    return zigzag(len(body)) + body


def zigzag(value: int) -> bytes:
    """Encode a signed varint as in records."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)
