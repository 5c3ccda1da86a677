"""Produce and Fetch requests that are built once and patched for each sending, and a quick look at their answers.

For measuring what lies between, where building 2,000 requests a second would cost more than what is measured.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from pidgate.load.exchanges import message_of
from pidgate.protocol import codec
from pidgate.protocol.frames import read_uvarint, skip_tags, uvarint
from pidgate.protocol.produce import BATCH_HEADER_BYTES
from pidgate.protocol.record_batch import MAX_SEQUENCE

FETCH_VERSION: Final = 18

# Offsets inside a record batch.
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_BASE_SEQUENCE_AT: Final = 53
_CORRELATION_ID_AT: Final = 8
_FETCH: Final = 1
_MARK: Final = 0x7E5AC0DE00000000
"""Placeholder of a fetch offset."""

_int16: Final = struct.Struct(">h")
_int32: Final = struct.Struct(">i")
_int64: Final = struct.Struct(">q")
_uint32: Final = struct.Struct(">I")
# One partition of a Produce v13 answer without record errors, message or tags.
_PRODUCE_PARTITION: Final = struct.Struct(">ihqqqBBB")


class LoadError(Exception):
    """A broker or proxy did not answer as the load expects; the run counts for nothing."""


class ProduceFrame:
    """A framed Produce request (size prefix included), patched for each sending of a producer.

    `batches` are those of the request, in its order. `buffer` must not be patched while the kernel has not taken all of
    it. `checksum`: CRC-32C of a batch's part.
    """

    __slots__ = ("_batches", "_checksum", "buffer", "records")

    def __init__(
        self, request: bytes, batches: Sequence[bytes], *, checksum: Callable[[memoryview], int]
    ) -> None:
        self.buffer = bytearray(request)
        self.records: list[int] = [_int32.unpack_from(one, BATCH_HEADER_BYTES - 4)[0] for one in batches]
        """Of each batch."""
        self._checksum = checksum
        view = memoryview(self.buffer)
        self._batches: list[tuple[int, memoryview]] = []
        at = 0
        for batch in batches:
            at = self.buffer.index(batch, at)
            self._batches.append((at, view[at + _CRC_FROM : at + len(batch)]))
            at += len(batch)

    def patch(self, correlation_id: int, number: int) -> None:
        """Make it the `number`-th request (from 0) of a producer that sends no other: sequences and CRCs follow."""
        self.patch_sequences(correlation_id, [number * records & MAX_SEQUENCE for records in self.records])

    def patch_sequences(self, correlation_id: int, base_sequences: Sequence[int]) -> None:
        """Give each batch its base sequence and CRC."""
        buffer, checksum = self.buffer, self._checksum
        _int32.pack_into(buffer, _CORRELATION_ID_AT, correlation_id)
        for (start, covered), sequence in zip(self._batches, base_sequences, strict=True):
            _int32.pack_into(buffer, start + _BASE_SEQUENCE_AT, sequence)
            _uint32.pack_into(buffer, start + _CRC_AT, checksum(covered))


def check_produce_answer(frame: memoryview, correlation_id: int, partitions: int) -> None:
    """Check an answer to Produce v13 (without size prefix). Raises LoadError unless every partition has succeeded."""
    _check_correlation_id(frame, correlation_id)
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
    """A framed Fetch request over some partitions of one topic, without a fetch session."""

    __slots__ = ("_offset_at", "buffer")

    def __init__(
        self, client_id: str, topic_id: bytes, partitions: Sequence[int], *, partition_max_bytes: int
    ) -> None:
        places = [
            {
                "partition": partition,
                "current_leader_epoch": -1,
                "fetch_offset": _MARK + partition,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": partition_max_bytes,
            }
            for partition in partitions
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
        message = message_of(codec.message_class(_FETCH, "request"), FETCH_VERSION, body)
        self.buffer = bytearray(codec.encode_request(0, client_id, message))
        self._offset_at = [self.buffer.index(_int64.pack(_MARK + partition)) for partition in partitions]

    def patch(self, correlation_id: int, offsets: Sequence[int]) -> None:
        """Ask for these offsets, in the order of the partitions."""
        _int32.pack_into(self.buffer, _CORRELATION_ID_AT, correlation_id)
        for at, offset in zip(self._offset_at, offsets, strict=True):
            _int64.pack_into(self.buffer, at, offset)


class Fetched(NamedTuple):
    """One partition of a Fetch answer, in whole batches."""

    records: int
    next_offset: int
    """Behind the last whole batch; -1 without one."""
    high_watermark: int


def read_fetch_answer(frame: memoryview, correlation_id: int) -> dict[int, Fetched]:
    """Return the partitions of a Fetch v18 answer (without size prefix). Raises LoadError on any error code."""
    _check_correlation_id(frame, correlation_id)
    error_code = _int16.unpack_from(frame, 9)[0]
    if error_code:
        raise LoadError(f"Fetch: error code {error_code}")
    got: dict[int, Fetched] = {}
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
            end = at + max(0, size - 1)
            got[partition] = Fetched(*_whole_batches(frame[at:end]), high_watermark)
            at = skip_tags(frame, end, len(frame))
        at = skip_tags(frame, at, len(frame))
    return got


def _check_correlation_id(frame: memoryview, expected: int) -> None:
    correlation_id = _int32.unpack_from(frame)[0]
    if correlation_id != expected:
        raise LoadError(f"answer to request {correlation_id}, expected {expected}")


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
