"""The few Kafka frames that the load is made of: Produce v13 and Fetch v18, built once and patched.

Knows bytes and offsets, no sockets and no time. Layouts: Kafka's common/message/*.json; record batch v2:
org.apache.kafka.common.record.DefaultRecordBatch.
"""

import os
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import crc32c

PRODUCE_VERSION: Final = 13
FETCH_VERSION: Final = 18
CLIENT_ID: Final = b"bench"

# Offsets inside a record batch.
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_BASE_SEQUENCE_AT: Final = 53
_BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
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


def varint(value: int) -> bytes:
    """An unsigned varint (KIP-482)."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def read_varint(buf: memoryview, at: int) -> tuple[int, int]:
    """The unsigned varint at `at` and the offset behind it."""
    value = shift = 0
    while True:
        byte = buf[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def record_batch(producer_id: int, records: int, record_bytes: int) -> bytes:
    """A record batch v2, uncompressed, of `records` records with values of `record_bytes` bytes.

    Epoch 0, base sequence 0 and a CRC that fits. Values are random: nothing on the way can compress them.
    """
    body = bytearray()
    for delta in range(records):
        record = b"\0\0" + _zigzag(delta) + _zigzag(-1) + _zigzag(record_bytes)
        record += os.urandom(record_bytes) + _zigzag(0)
        body += _zigzag(len(record)) + record
    length = _BATCH_HEADER.size + len(body)
    timestamp_ms = 1_780_000_000_000
    header = _BATCH_HEADER.pack(
        0, length - 12, 0, 2, 0, 0, records - 1, timestamp_ms, timestamp_ms, producer_id, 0, 0, records
    )
    batch = bytearray(header + body)
    _uint32.pack_into(batch, _CRC_AT, crc32c.crc32c(memoryview(batch)[_CRC_FROM:]))
    return bytes(batch)


class ProduceFrame:
    """One framed Produce request (size prefix included), reused for each send of a producer.

    `buffer` must not be patched while the kernel has not taken all of it.
    """

    __slots__ = ("_batches", "_records", "buffer")

    def __init__(
        self, topic_id: bytes, partitions: Sequence[int], batch: bytes, *, acks: int, records: int
    ) -> None:
        head = struct.pack(">hhih", 0, PRODUCE_VERSION, 0, len(CLIENT_ID)) + CLIENT_ID + b"\0"
        head += varint(0) + struct.pack(">hi", acks, 30_000)
        body = bytearray(head + varint(2) + topic_id + varint(len(partitions) + 1))
        starts = []
        for partition in partitions:
            body += _int32.pack(partition) + varint(len(batch) + 1)
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
    at = 4 + 1 + 1 + 16 + len(varint(partitions + 1))
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
        body = bytearray(head + varint(2) + topic_id + varint(len(partitions) + 1))
        self._offset_at = []
        for partition in partitions:
            # partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset
            body += struct.pack(">ii", partition, -1)
            self._offset_at.append(4 + len(body))
            body += struct.pack(">qiqi", 0, -1, -1, partition_max_bytes) + b"\0"
        body += b"\0"
        body += varint(1) + varint(1) + b"\0"  # no forgotten topics, rack id "", no tags
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
    if _int32.unpack_from(frame)[0] != correlation_id:
        raise LoadError(f"answer to request {_int32.unpack_from(frame)[0]}, expected {correlation_id}")
    error_code = _int16.unpack_from(frame, 9)[0]
    if error_code:
        raise LoadError(f"Fetch: error code {error_code}")
    got: dict[int, Fetched] = {}
    topics, at = read_varint(frame, 15)
    for _ in range(topics - 1):
        partitions, at = read_varint(frame, at + 16)
        for _ in range(partitions - 1):
            partition, error_code, high_watermark = struct.unpack_from(">ihq", frame, at)
            if error_code:
                raise LoadError(f"Fetch of partition {partition}: error code {error_code}")
            aborted, at = read_varint(frame, at + 30)
            if aborted > 1:
                raise LoadError("aborted transactions in a topic of the load")
            size, at = read_varint(frame, at + 4)
            records, next_offset = _whole_batches(frame[at : at + max(0, size - 1)])
            got[partition] = Fetched(records, next_offset, high_watermark)
            at = _skip_tags(frame, at + max(0, size - 1))
        at = _skip_tags(frame, at)
    return got


def _whole_batches(records: memoryview) -> tuple[int, int]:
    at, count, next_offset = 0, 0, -1
    while at + _BATCH_HEADER.size <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        in_batch = _int32.unpack_from(records, at + 57)[0]
        count += in_batch
        next_offset = base_offset + in_batch
        at += 12 + length
    return count, next_offset


def _skip_tags(frame: memoryview, at: int) -> int:
    tags, at = read_varint(frame, at)
    for _ in range(tags):
        _tag, at = read_varint(frame, at)
        size, at = read_varint(frame, at)
        at += size
    return at
