"""Produce requests of one connection, walked by what they repeat.

A producer sends the same kind of request again and again: client id, acks, timeout and topic stay; the correlation id,
the partition, the length of the records and the batch header change. When a request begins like the one before it
(`walk` has read those very bytes already) and holds one batch of one partition, only the rest is looked at. Anything
else goes to `walk`, whose answer this is in every case: a property test holds the two together.
"""

from __future__ import annotations

from collections.abc import Collection
from struct import error as struct_error
from typing import Final

from protocol.frames import Reader
from protocol.produce import (
    BATCH_HEADER_BYTES,
    FIRST_FLEXIBLE,
    FIRST_TOPIC_ID,
    LENGTH_OVERHEAD,
    NONE_FORBIDDEN,
    TRANSACTIONAL,
    ProducerBatch,
    unpack_batch,
    unpack_i32,
    walk_counting,
)

_NOTHING: Final = b"\xff"  # no request begins like this
_NO_TAGS: Final = b"\x00\x00\x00"  # of the partition, of the topic and of the request

_HEAD_BYTES: Final = 4
_AFTER_CORRELATION_ID: Final = 8
LONGEST_KEPT: Final = 512
"""Bytes of a beginning that are kept for a connection: room for a client id and a topic of 249 characters each."""

MISSES_PER_KEPT: Final = 16


class RepeatedProduce:
    """Walks the Produce requests of one connection."""

    __slots__ = (
        "_acks",
        "_forbidden",
        "_head",
        "_misses",
        "_names_transaction",
        "_same",
        "_topic",
        "record_counts",
    )

    def __init__(self, forbidden: Collection[bytes] = NONE_FORBIDDEN) -> None:
        """`forbidden`: topics in the form of ProducerBatch; a set that grows later is heeded."""
        self._forbidden = forbidden
        self._head = _NOTHING
        """Api key and version of the kept beginning."""
        self._same = b""
        """From the client id up to the number of partitions, both included."""
        self._acks = 0
        self._names_transaction = False
        self._topic = b""
        self._misses = 0
        self.record_counts: list[int] = []
        """Of the request that was walked last: for each of its batches the number of records, by its header."""

    def walk(self, buf: bytes | bytearray, start: int, end: int) -> tuple[int, bool, list[ProducerBatch]]:
        """What `protocol.produce.walk` says of the frame buf[start:end]. Raises as it does, and ForbiddenTopic."""
        if (
            buf.startswith(self._head, start)
            and buf.startswith(self._same, start + _AFTER_CORRELATION_ID)
            and self._topic not in self._forbidden
        ):
            try:
                again = self._walk_rest(buf, start + _AFTER_CORRELATION_ID + len(self._same), end)
            except (struct_error, IndexError):
                again = None  # the frame ends too early: `walk` says so
            if again is not None:
                return again
        acks, transactional, batches, self.record_counts = walk_counting(buf, start, end, self._forbidden)
        if len(batches) == 1:
            # Not every time: a producer that changes between topics would pay for it and gain nothing.
            if self._misses % MISSES_PER_KEPT == 0:
                self._keep(buf, start, end)
            self._misses += 1
        return acks, transactional, batches

    def _walk_rest(
        self, buf: bytes | bytearray, p: int, end: int
    ) -> tuple[int, bool, list[ProducerBatch]] | None:
        """From the partition index on; None: not one batch and nothing else.

        What it may read beyond the frame is never used: the records have to end where the frame does.
        """
        (partition,) = unpack_i32(buf, p)
        length = buf[p + 4]  # one more than it is, in seven bits a byte
        p += 5
        if length >= 0x80:
            high = buf[p]
            p += 1
            length = length & 0x7F | (high & 0x7F) << 7
            if high >= 0x80:
                high = buf[p]
                p += 1
                if high >= 0x80:
                    return None
                length |= high << 14
        q = p + length - 1
        if q + len(_NO_TAGS) != end or q - p < BATCH_HEADER_BYTES or not buf.endswith(_NO_TAGS, q, end):
            return None
        batch_length, magic, attributes, producer_id, epoch, sequence, count = unpack_batch(buf, p)
        if magic != 2 or batch_length != q - p - LENGTH_OVERHEAD or producer_id < 0:
            return None
        self.record_counts = [count]
        transactional = self._names_transaction and bool(attributes & TRANSACTIONAL)
        return self._acks, transactional, [(producer_id, epoch, sequence, self._topic, partition)]

    def _keep(self, buf: bytes | bytearray, start: int, end: int) -> None:
        """Keep the beginning of a request that was walked, if it has one topic with one partition."""
        request = Reader(buf, start, end)
        request.skip(2)
        version = request.i16()
        request.skip(4)
        request.skip_string()
        if version < FIRST_FLEXIBLE:
            return
        request.flexible = True
        request.skip_tags()
        names_transaction = request.raw_string() is not None
        acks = request.i16()
        request.skip(4)
        if request.count(1) != 1:
            return
        topic = b"\x00" + request.take(16) if version >= FIRST_TOPIC_ID else request.raw_string()
        if topic is None or request.count(1) != 1:
            return
        same = bytes(buf[start + _AFTER_CORRELATION_ID : request.pos])
        if len(same) > LONGEST_KEPT:
            return
        self._head, self._same = bytes(buf[start : start + _HEAD_BYTES]), same
        self._acks, self._names_transaction = acks, names_transaction
        self._topic = topic
