"""Produce requests of one connection that repeat each other, recognised by what does not change. The hot path.

A producer sends the same kind of request again and again: client id, acks and timeout stay; the correlation id, the
topics and partitions, the length of the records and the batch headers change. When a request begins like the one that
was walked before it (`walk` has read those very bytes already), and all its batches are of one id, only the rest is
looked at, and little is made of it: the partitions of each topic. Anything else goes to `walk`: a property test holds
the two together.

Bytes are put together by hand here and not by `struct`: compiled (see setup.py), that is a few instructions,
and uncompiled it costs no more.
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
_NOTHING: Final = b"\xff"  # no request begins like this
_TAGS_BYTES: Final = 3  # empty ones of the partition, of the topic and of the request
_LEAST_ENTRY_BYTES: Final = 4 + 1 + BATCH_HEADER_BYTES + 1  # a partition with its own tags
_LEAST_TOPIC_BYTES: Final = 1 + 1 + _LEAST_ENTRY_BYTES + 1  # without a name, with its own tags
_MOST_TOPIC_BYTES: Final = 1 + 126 + 1  # a name whose length is one byte, and the number of partitions
_MOST_BEFORE_RECORDS_BYTES: Final = 4 + 4 + BATCH_HEADER_BYTES  # a partition's index, length and batch header

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
"""Bytes of a beginning that are kept for a connection: room for a client id and a transactional id of 249 each."""

BEGINNING_BYTES: Final = (
    _AFTER_CORRELATION_ID + LONGEST_KEPT + 1 + _MOST_TOPIC_BYTES + _MOST_BEFORE_RECORDS_BYTES
)
"""Of a request with one batch: all that `begins` looks at."""

MOST_BATCHES: Final = 100
"""In one request: what has more is walked, which is the smaller part of what it costs."""

MISSES_PER_KEPT: Final = 16


class RepeatedProduce:
    """Recogniser of repeated Produce requests of one connection."""

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
        """`forbidden`: topics in the form of ProducerBatch; a set that grows later is heeded."""
        self._forbidden = forbidden
        self._head = _NOTHING
        """Api key and version of the kept beginning."""
        self._same = b""
        """From the client id up to the number of topics, without it."""
        self._written_id = b""
        """Producer id and epoch as they stood in the batch that was recognised last."""
        self._written_topics: list[bytes] = []
        """As they stood in that request: what stands there again has been looked at."""
        self._misses = 0
        self.record_counts: list[int] = []
        """Of the request that was walked last: for each of its batches the number of records, by its header."""
        self.places = 0
        """Of the same: its topics, partitions and old messages."""
        # What follows is of the kept beginning.
        self.version = 0
        self.acks = 0
        self.transactional = False
        # And this of the request that was recognised last.
        self.correlation_id = 0
        self.producer_id = -1
        self.epoch = -1
        self.topics: list[bytes] = []
        """In the form of ProducerBatch, and in the order of the request; changed by the next one."""
        self.partitions: list[list[int]] = []
        """Of each topic: one for each batch, in their order."""
        self.batches = 0
        self.record_count = 0
        """Of all batches together, as their headers claim it."""

    def recognises(  # noqa: C901 - flat for the same reason as produce.walk
        self, frame: bytes | bytearray, start: int, end: int
    ) -> bool:
        """Return whether frame[start:end] repeats the kept beginning, all its batches being of one producer id: the
        public numbers are this request's then. False decides nothing: ask `walk`. Never raises.
        """
        same = self._same
        p = start + _AFTER_CORRELATION_ID + len(same)
        stop = end - 1  # the request's own tags
        if stop - p < 1 + _LEAST_TOPIC_BYTES:
            return False
        # Of bytes all is read in place. Of a bytearray, whose elements cost a call each, what is looked at is copied:
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

    def begins(self, beginning: bytes, request_bytes: int) -> bool:
        """Return whether a request of so many bytes, with this beginning, repeats the kept one and has one batch: the
        public numbers are this request's then. What is not looked at is the inside of that batch, and three bytes of
        tags behind it, in which nothing else could be. False decides nothing. Never raises.
        """
        p = _AFTER_CORRELATION_ID + len(self._same)
        last = len(beginning) - _MOST_BEFORE_RECORDS_BYTES - 1  # where the number of partitions may be
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
        """Return whether the request at `start` begins like the kept one, and take its correlation id."""
        c = start + _HEAD_BYTES
        p = start + _AFTER_CORRELATION_ID
        same = self._same
        if part[start:c] != self._head or part[p : p + len(same)] != same:
            return False
        correlation_id = part[c] << 24 | part[c + 1] << 16 | part[c + 2] << 8 | part[c + 3]
        self.correlation_id = correlation_id if correlation_id < 1 << 31 else correlation_id - (1 << 32)
        return True

    def _recognise_topic(self, part: bytes, at: int, stop: int, number: int) -> int:
        """Take the topic at `at`, the request's topic of that number, of which one byte at least stands before `stop`.
        Returns where the number of its partitions is, which is before `stop`; 0: look at it otherwise.
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
        """Of a request before this one, which had more topics."""
        if len(self.topics) > topics:
            del self._written_topics[topics:]
            del self.topics[topics:]
            del self.partitions[topics:]

    def _recognise_batch(self, frame: bytes, p: int, last: int, partitions: list[int]) -> int:
        """One partition with its batch, from its index to its tags, which stand at `last` or before; `partitions` are
        those of its topic before it, and its own is added. Returns where its tags are; 0: look at it otherwise.
        """
        if last - p < _LEAST_ENTRY_BYTES - 1:
            return 0
        partition = frame[p] << 24 | frame[p + 1] << 16 | frame[p + 2] << 8 | frame[p + 3]
        length = frame[p + 4]  # one more than it is, in seven bits a byte
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
            return 0  # the request names a transactional id, and its batch is none of a transaction
        written_id = frame[p + _PRODUCER_ID : p + _PRODUCER_EPOCH + 2]
        if written_id != self._written_id:
            if written_id[0] >= 0x80 or self.batches:
                return 0  # -1: no producer id; or not the id of the batch before it
            self._written_id = written_id
            self.producer_id = int.from_bytes(written_id[:8], "big")
            self.epoch = int.from_bytes(written_id[8:], "big", signed=True)
        partitions.append(partition)
        self.batches += 1
        self.record_count += count
        return q

    def walk(self, buf: bytes | bytearray, head: RequestHead) -> tuple[int, bool, list[ProducerBatch]]:
        """Return what `produce.walk` says of the request in `buf`. Raises as it does, and ForbiddenTopic."""
        acks, transactional, batches, self.record_counts, self.places = walk_counting(
            buf, head, self._forbidden
        )
        if 0 < len(batches) <= MOST_BATCHES:
            # Not every time: a producer that changes between topics would pay for it and gain nothing.
            if self._misses % MISSES_PER_KEPT == 0:
                self._keep(buf, head, transactional)
            self._misses += 1
        return acks, transactional, batches

    def _keep(self, buf: bytes | bytearray, head: RequestHead, transactional: bool) -> None:
        """Keep the beginning of a request that was walked."""
        start, version = head.start, head.api_version
        if version < FIRST_FLEXIBLE:
            return
        request = Reader(buf, head.body, head.end, flexible=True)
        if (request.raw_string() is not None) is not transactional:
            return  # names a transactional id for batches of no transaction: not how a client repeats itself
        acks = request.i16()
        request.skip(4)
        same = bytes(buf[start + _AFTER_CORRELATION_ID : request.pos])
        if len(same) > LONGEST_KEPT:
            return
        self._forget_beyond(0)  # a topic is written otherwise in another version
        self._head, self._same = bytes(buf[start : start + _HEAD_BYTES]), same
        self.version, self.acks, self.transactional = version, acks, transactional
