"""The few Kafka frames that the load is made of: Produce v13 and Fetch v18, built once and patched.

Knows bytes and offsets, no sockets and no time. Layouts: Kafka's common/message/*.json; record batch v2:
org.apache.kafka.common.record.DefaultRecordBatch.
"""

import os
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import crc32c

from pidgate.protocol import record_batch as batches
from pidgate.protocol.frames import read_uvarint, uvarint
from pidgate.protocol.produce import BATCH_HEADER_BYTES

PRODUCE_VERSION: Final = 13
FETCH_VERSION: Final = 18
CLIENT_ID: Final = b"bench"

# Offsets inside a record batch.
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_BASE_SEQUENCE_AT: Final = 53
_TIMESTAMP_MS: Final = 1_780_000_000_000
_CORRELATION_ID_AT: Final = 8
_SEQUENCE_LIMIT: Final = 1 << 31

_int16: Final = struct.Struct(">h")
_int32: Final = struct.Struct(">i")
_int64: Final = struct.Struct(">q")
_uint32: Final = struct.Struct(">I")

# One partition of a Produce v13 answer without record errors, message or tags.
_PRODUCE_PARTITION: Final = struct.Struct(">ihqqqBBB")


class LoadError(Exception):
    """A broker or proxy did not do what the load expects; the run counts for nothing."""


def record_batch(producer_id: int, records: int, record_bytes: int) -> bytes:
    """A record batch v2, uncompressed, of `records` records with values of `record_bytes` bytes.

    Epoch 0, base sequence 0. Values are random: nothing on the way can compress them.
    """
    values = [os.urandom(record_bytes) for _ in range(records)]
    return batches.record_batch(values, producer_id, 0, 0, _TIMESTAMP_MS)


class ProduceFrame:
    """One framed Produce request (size prefix included), reused for each send of a producer.

    `buffer` must not be patched while the kernel has not taken all of it.
    """

    __slots__ = ("_batches", "_records", "buffer")

    def __init__(
        self, topic_id: bytes, partitions: Sequence[int], batch: bytes, *, acks: int, records: int
    ) -> None:
        head = struct.pack(">hhih", 0, PRODUCE_VERSION, 0, len(CLIENT_ID)) + CLIENT_ID + b"\0"
        head += uvarint(0) + struct.pack(">hi", acks, 30_000)
        body = bytearray(head + uvarint(2) + topic_id + uvarint(len(partitions) + 1))
        starts = []
        for partition in partitions:
            body += _int32.pack(partition) + uvarint(len(batch) + 1)
            starts.append(4 + len(body))
            body += batch + b"\0"
        body += b"\0\0"
        self.buffer = bytearray(_int32.pack(len(body)) + body)
        view = memoryview(self.buffer)
        self._batches = [(start, view[start + _CRC_FROM : start + len(batch)]) for start in starts]
        self._records = records

    def patch(self, correlation_id: int, number: int) -> None:
        """Make it the `number`-th request (from 0) of its producer: sequences and CRCs follow."""
        buffer = self.buffer
        _int32.pack_into(buffer, _CORRELATION_ID_AT, correlation_id)
        sequence = number * self._records % _SEQUENCE_LIMIT
        for start, covered in self._batches:
            _int32.pack_into(buffer, start + _BASE_SEQUENCE_AT, sequence)
            _uint32.pack_into(buffer, start + _CRC_AT, crc32c.crc32c(covered))


def check_produce_answer(frame: memoryview, correlation_id: int, partitions: int) -> None:
    """Raise LoadError unless the answer (without size prefix) says success for every partition."""
    if _int32.unpack_from(frame)[0] != correlation_id:
        raise LoadError(f"answer to request {_int32.unpack_from(frame)[0]}, expected {correlation_id}")
    at = 4 + 1 + 1 + 16 + len(uvarint(partitions + 1))
    if len(frame) < at + partitions * _PRODUCE_PARTITION.size + 6:
        raise LoadError(f"short Produce answer: {bytes(frame[:200]).hex()}")
    for _ in range(partitions):
        index, error_code, *_rest = _PRODUCE_PARTITION.unpack_from(frame, at)
        if error_code:
            raise LoadError(f"Produce to partition {index}: error code {error_code}")
        at += _PRODUCE_PARTITION.size
    throttle_time_ms = _int32.unpack_from(frame, at + 1)[0]
    if throttle_time_ms:
        raise LoadError(f"Produce answered with throttle_time_ms {throttle_time_ms}")


class FetchFrame:
    """One framed Fetch request over some partitions of one topic, without a fetch session."""

    __slots__ = ("_offset_at", "buffer")

    def __init__(self, topic_id: bytes, partitions: Sequence[int], *, partition_max_bytes: int) -> None:
        head = struct.pack(">hhih", 1, FETCH_VERSION, 0, len(CLIENT_ID)) + CLIENT_ID + b"\0"
        # max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch (-1: no session)
        head += struct.pack(">iiibii", 500, 1, 50_000_000, 0, 0, -1)
        body = bytearray(head + uvarint(2) + topic_id + uvarint(len(partitions) + 1))
        self._offset_at = []
        for partition in partitions:
            # partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset
            body += struct.pack(">ii", partition, -1)
            self._offset_at.append(4 + len(body))
            body += struct.pack(">qiqi", 0, -1, -1, partition_max_bytes) + b"\0"
        body += b"\0"
        body += uvarint(1) + uvarint(1) + b"\0"  # no forgotten topics, rack id "", no tags
        self.buffer = bytearray(_int32.pack(len(body)) + body)

    def patch(self, correlation_id: int, offsets: Sequence[int]) -> None:
        """Ask for these offsets, in the order of the partitions."""
        _int32.pack_into(self.buffer, _CORRELATION_ID_AT, correlation_id)
        for at, offset in zip(self._offset_at, offsets, strict=True):
            _int64.pack_into(self.buffer, at, offset)


class Fetched(NamedTuple):
    """What one partition of a Fetch answer held, in whole batches."""

    records: int
    next_offset: int
    """Behind the last whole batch; -1 without one."""
    high_watermark: int


def read_fetch_answer(frame: memoryview, correlation_id: int) -> dict[int, Fetched]:
    """The partitions of a Fetch v18 answer (without size prefix); LoadError on any error code."""
    return {partition: fetched for partition, (fetched, _) in fetched_records(frame, correlation_id).items()}


def fetched_records(frame: memoryview, correlation_id: int) -> dict[int, tuple[Fetched, memoryview]]:
    """The same with the records themselves, the last batch of which may be cut."""
    if _int32.unpack_from(frame)[0] != correlation_id:
        raise LoadError(f"answer to request {_int32.unpack_from(frame)[0]}, expected {correlation_id}")
    error_code = _int16.unpack_from(frame, 9)[0]
    if error_code:
        raise LoadError(f"Fetch: error code {error_code}")
    got: dict[int, tuple[Fetched, memoryview]] = {}
    topics, at = read_uvarint(frame, 15)
    for _ in range(topics - 1):
        partitions, at = read_uvarint(frame, at + 16)
        for _ in range(partitions - 1):
            partition, error_code, high_watermark = struct.unpack_from(">ihq", frame, at)
            if error_code:
                raise LoadError(f"Fetch of partition {partition}: error code {error_code}")
            aborted, at = read_uvarint(frame, at + 30)
            if aborted > 1:
                raise LoadError("aborted transactions in a topic of the load")
            size, at = read_uvarint(frame, at + 4)
            batches = frame[at : at + max(0, size - 1)]
            records, next_offset = _whole_batches(batches)
            got[partition] = Fetched(records, next_offset, high_watermark), batches
            at = _skip_tags(frame, at + len(batches))
        at = _skip_tags(frame, at)
    return got


def _whole_batches(records: memoryview) -> tuple[int, int]:
    at, count, next_offset = 0, 0, -1
    while at + BATCH_HEADER_BYTES <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        in_batch = _int32.unpack_from(records, at + 57)[0]
        count += in_batch
        next_offset = base_offset + in_batch
        at += 12 + length
    return count, next_offset


def _skip_tags(frame: memoryview, at: int) -> int:
    tags, at = read_uvarint(frame, at)
    for _ in range(tags):
        _tag, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        at += size
    return at
