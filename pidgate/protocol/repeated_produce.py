"""Recogniser for repeated Produce requests of one connection. The hot path.

A producer repeats one kind of request: client id, acks and timeout stay, while correlation id, topics,
partitions, record lengths and batch headers change. If a request starts like the previously walked one and
all its batches have one producer id, only the rest is inspected, and only the partitions of each topic are
stored. Every other request goes to `walk`. A property test checks that both agree.

Integers are assembled by hand instead of with `struct`: compiled (setup.py) that is a few instructions, and
uncompiled it is no slower.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pidgate.protocol.frames import Reader
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.produce import (
    BATCH_HEADER_BYTES,
    FIRST_FLEXIBLE,
    FIRST_TOPIC_ID,
    LENGTH_OVERHEAD,
    NONE_FORBIDDEN,
    TRANSACTIONAL,
    ProducerBatch,
    walk_counting,
)

_NO_VIEW: Final = memoryview(b"")
_NOTHING: Final = b"\xff"  # no request starts like this
_TAGS_BYTES: Final = 3  # empty tags of partition, topic and request
_LEAST_ENTRY_BYTES: Final = 4 + 1 + BATCH_HEADER_BYTES + 1  # a partition with tags
_LEAST_TOPIC_BYTES: Final = 1 + 1 + _LEAST_ENTRY_BYTES + 1  # empty name, one partition and tags
_MOST_TOPIC_BYTES: Final = 1 + 126 + 1  # a name with a one byte length, and the partition count
_MOST_BEFORE_RECORDS_BYTES: Final = 4 + 4 + BATCH_HEADER_BYTES  # partition index, length and batch header

_HEAD_BYTES: Final = 4
_AFTER_CORRELATION_ID: Final = 8
# Offsets in a batch (KIP-98).
_BATCH_LENGTH: Final = 8
_MAGIC: Final = 16
_ATTRIBUTES: Final = 22  # the lower of two bytes
_PRODUCER_ID: Final = 43
_PRODUCER_EPOCH: Final = 51
_RECORD_COUNT: Final = 57

LONGEST_KEPT: Final = 512
"""Longest stored beginning: room for a client id and a transactional id of 249 bytes each."""

BEGINNING_BYTES: Final = (
    _AFTER_CORRELATION_ID + LONGEST_KEPT + 1 + _MOST_TOPIC_BYTES + _MOST_BEFORE_RECORDS_BYTES
)
"""Bytes of a request with one batch that `recognise_beginning` inspects."""

MOST_BATCHES: Final = 100
"""Most batches of a recognised request. Larger requests are walked, a small part of their total cost."""

MISSES_PER_KEPT: Final = 16


class RepeatedProduce:
    """Recogniser for the repeated Produce requests of one connection."""

    __slots__ = (
        "_forbidden",
        "_head",
        "_misses",
        "_same",
        "_written_id",
        "_written_topics",
        "acks",
        "batches",
        "correlation_id",
        "epoch",
        "partitions",
        "places",
        "producer_id",
        "record_count",
        "record_counts",
        "topics",
        "transactional",
        "version",
    )

    def __init__(self, forbidden: Collection[bytes] = NONE_FORBIDDEN) -> None:
        """`forbidden`: topics in the form of ProducerBatch. Later additions to the set take effect."""
        self._forbidden = forbidden
        self._head = _NOTHING
        """API key and version of the stored beginning."""
        self._same = b""
        """From the client id to just before the topic count."""
        self._written_id = b""
        """Producer id and epoch bytes of the last recognised batch."""
        self._written_topics: list[bytes] = []
        """Topic bytes of the last recognised request. Equal bytes need no further check."""
        self._misses = 0
        self.record_counts: list[int] = []
        """Record count of each batch in the last walked request, from the headers."""
        self.places = 0
        """Topics, partitions and old messages of the last walked request."""
        # Fields of the stored beginning:
        self.version = 0
        self.acks = 0
        self.transactional = False
        # Fields of the last recognised request:
        self.correlation_id = 0
        self.producer_id = -1
        self.epoch = -1
        self.topics: list[bytes] = []
        """In the form of ProducerBatch and in request order; overwritten by the next request."""
        self.partitions: list[list[int]] = []
        """Per topic, the partition of each batch in request order."""
        self.batches = 0
        self.record_count = 0
        """Sum over all batches, as claimed by their headers."""

    def recognise_request(  # noqa: C901 - flat for the same reason as produce.walk
        self, frame: bytes | bytearray, start: int, end: int
    ) -> bool:
        """Return whether frame[start:end] repeats the stored beginning with a single producer id.

        If so, the public fields describe this request. False is inconclusive: call `walk`. Never raises.
        """
        same = self._same
        p = start + _AFTER_CORRELATION_ID + len(same)
        stop = end - 1  # tags of the request
        if stop - p < 1 + _LEAST_TOPIC_BYTES:
            return False
        # Bytes are read in place. Elements of a bytearray cost a call each, so the inspected part is copied:
        # frame[at] is part[at - origin] everywhere below.
        is_whole = isinstance(frame, bytes)
        if isinstance(frame, bytes):
            view, part, origin = _NO_VIEW, frame, 0
        else:
            view = memoryview(frame)
            part, origin = bytes(view[start : p + 1]), start
        at = p - origin
        if not self._recognise_head(part, start - origin) or not 1 < part[at] < 0x80:
            return False
        topics = part[at] - 1
        p += 1
        self.batches = self.record_count = 0
        for number in range(topics):
            if stop - p < _LEAST_TOPIC_BYTES:
                return False
            if not is_whole:
                part, origin = bytes(view[p : min(end, p + _MOST_TOPIC_BYTES)]), p
            at = self._recognise_topic(part, p - origin, stop - origin, number)
            if not at or not 1 < part[at] < 0x80:
                return False
            partitions: list[int] = []
            self.partitions[number] = partitions
            left = part[at] - 1
            p = origin + at + 1
            if self.batches + left > MOST_BATCHES:
                return False
            for _ in range(left):
                if not is_whole:
                    part, origin = bytes(view[p : min(end, p + _MOST_BEFORE_RECORDS_BYTES)]), p
                at = self._recognise_batch(part, p - origin, stop - 2 - origin, partitions)
                if not at:
                    return False
                p = origin + at
                if part[at] if is_whole else frame[p]:
                    return False
                p += 1
            if p >= stop or (part[p] if is_whole else frame[p]):
                return False
            p += 1
        if p != stop or (part[p] if is_whole else frame[p]):
            return False
        self._forget_beyond(topics)
        return True

    def recognise_beginning(self, beginning: bytes, request_bytes: int) -> bool:
        """Return whether a request of this length with this beginning repeats the stored one with one batch.

        If so, the public fields describe this request. Not inspected: the records and three tag bytes after
        them, which must be empty. False is inconclusive. Never raises.
        """
        p = _AFTER_CORRELATION_ID + len(self._same)
        last = len(beginning) - _MOST_BEFORE_RECORDS_BYTES - 1  # last place of the partition count
        if p + 1 >= last or not self._recognise_head(beginning, 0) or beginning[p] != 2:
            return False
        self.batches = self.record_count = 0
        p = self._recognise_topic(beginning, p + 1, last + 1, 0)
        if not p or beginning[p] != 2:
            return False
        self.partitions[0] = []
        last = request_bytes - _TAGS_BYTES
        if self._recognise_batch(beginning, p + 1, last, self.partitions[0]) != last:
            return False
        self._forget_beyond(1)
        return True

    def _recognise_head(self, part: bytes, start: int) -> bool:
        """Return whether the request at `start` repeats the stored head, and store its correlation id."""
        c = start + _HEAD_BYTES
        p = start + _AFTER_CORRELATION_ID
        same = self._same
        if part[start:c] != self._head or part[p : p + len(same)] != same:
            return False
        correlation_id = part[c] << 24 | part[c + 1] << 16 | part[c + 2] << 8 | part[c + 3]
        self.correlation_id = correlation_id if correlation_id < 1 << 31 else correlation_id - (1 << 32)
        return True

    def _recognise_topic(self, part: bytes, at: int, stop: int, number: int) -> int:
        """Read the topic at `at`, the request's topic with this number; at least one byte precedes `stop`.

        Returns the position of its partition count, which is before `stop`; 0: not recognised.
        """
        if self.version >= FIRST_TOPIC_ID:
            q = at + 16
        else:
            q = at + part[at]
            at += 1
            if part[at - 1] >= 0x80 or q < at:
                return 0
        if q >= stop:
            return 0
        written = part[at:q]
        if number == len(self._written_topics):
            self._written_topics.append(_NOTHING)
            self.topics.append(_NOTHING)
            self.partitions.append([])
        if written != self._written_topics[number]:
            self._written_topics[number] = written
            self.topics[number] = b"\x00" + written if self.version >= FIRST_TOPIC_ID else written
        return 0 if self.topics[number] in self._forbidden else q

    def _forget_beyond(self, topics: int) -> None:
        """Drop leftover topics of an earlier request that had more."""
        if len(self.topics) > topics:
            del self._written_topics[topics:]
            del self.topics[topics:]
            del self.partitions[topics:]

    def _recognise_batch(self, frame: bytes, p: int, last: int, partitions: list[int]) -> int:
        """Read one partition with its batch, whose tags are at `last` or before; append to `partitions`.

        `partitions` holds the topic's earlier partitions. Returns the position of the tags; 0: not
        recognised.
        """
        if last - p < _LEAST_ENTRY_BYTES - 1:
            return 0
        partition = frame[p] << 24 | frame[p + 1] << 16 | frame[p + 2] << 8 | frame[p + 3]
        length = frame[p + 4]  # compact length: seven bits per byte, one more than the value
        p += 5
        if length >= 0x80:
            high = frame[p]
            p += 1
            length = length & 0x7F | (high & 0x7F) << 7
            if high >= 0x80:
                high = frame[p]
                p += 1
                length |= (high & 0x7F) << 14
                if high >= 0x80:
                    high = frame[p]
                    p += 1
                    if high >= 0x80:
                        return 0
                    length |= high << 21
        q = p + length - 1
        if q > last or q - p < BATCH_HEADER_BYTES or frame[p + _MAGIC] != 2:
            return 0
        at = p + _BATCH_LENGTH
        if q - p - LENGTH_OVERHEAD != (
            frame[at] << 24 | frame[at + 1] << 16 | frame[at + 2] << 8 | frame[at + 3]
        ):
            return 0
        at = p + _RECORD_COUNT
        count = frame[at] << 24 | frame[at + 1] << 16 | frame[at + 2] << 8 | frame[at + 3]
        if partition >= 1 << 31 or count >= 1 << 31:
            return 0
        if self.transactional and not frame[p + _ATTRIBUTES] & TRANSACTIONAL:
            return 0  # transactional id, but the batch is not transactional
        written_id = frame[p + _PRODUCER_ID : p + _PRODUCER_EPOCH + 2]
        if written_id != self._written_id:
            if written_id[0] >= 0x80 or self.batches:
                return 0  # no producer id (-1), or a different one than the batch before
            self._written_id = written_id
            self.producer_id = int.from_bytes(written_id[:8], "big")
            self.epoch = int.from_bytes(written_id[8:], "big", signed=True)
        partitions.append(partition)
        self.batches += 1
        self.record_count += count
        return q

    def beginning(self) -> tuple[bytes, bytes, bytes] | None:
        """Return API key and version, what stays the same, and the written id. None: nothing was recognised yet."""
        return (self._head, self._same, self._written_id) if self._same and self._written_id else None

    def resume(self, correlation_id: int, topic: bytes, partition: int, records: int) -> None:
        """Describe a request that repeats the stored beginning, with one batch, which a lane has recognised."""
        self._forget_beyond(0)
        self.correlation_id = correlation_id
        self._written_topics = [topic]
        self.topics = [b"\x00" + topic if self.version >= FIRST_TOPIC_ID else topic]
        self.partitions = [[partition]]
        self.batches = 1
        self.record_count = records

    def walk(self, buf: bytes | bytearray, head: RequestHead) -> tuple[int, bool, list[ProducerBatch]]:
        """Return the result of `produce.walk` for the request in `buf`.

        Raises as it does, and ForbiddenTopic.
        """
        acks, transactional, batches, self.record_counts, self.places = walk_counting(
            buf, head, self._forbidden
        )
        if 0 < len(batches) <= MOST_BATCHES:
            # Not after every miss: a producer that alternates between topics would pay for it without a gain.
            if self._misses % MISSES_PER_KEPT == 0:
                self._store_beginning(buf, head, transactional)
            self._misses += 1
        return acks, transactional, batches

    def _store_beginning(self, buf: bytes | bytearray, head: RequestHead, transactional: bool) -> None:
        """Store the beginning of a walked request."""
        start, version = head.start, head.api_version
        if version < FIRST_FLEXIBLE:
            return
        request = Reader(buf, head.body, head.end, flexible=True)
        if (request.raw_string() is not None) is not transactional:
            return  # transactional id with non-transactional batches, which no client repeats
        acks = request.i16()
        request.skip(4)
        same = bytes(buf[start + _AFTER_CORRELATION_ID : request.pos])
        if len(same) > LONGEST_KEPT:
            return
        self._forget_beyond(0)  # topics are encoded differently in another version
        self._head, self._same = bytes(buf[start : start + _HEAD_BYTES]), same
        self.version, self.acks, self.transactional = version, acks, transactional
