"""Follower of a gateway topic: delivers every record once, in partition order, until cancelled.

Reconnects by itself and continues after the last delivered record. Delivers bytes; must not know their
meaning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.topics.availability import Availability, explain_error, load, stop_client
from pidgate.gateway.topics.gateway_topic import GatewayTopic
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.gateway.topics.records import EventRecord

__all__ = ["EventFollower", "EventRecord", "OnRecords", "StartAt"]

log = logger()

CHUNK_RECORDS: Final = 200
"""Records delivered per callback; between two callbacks the event loop serves connections."""
REQUEST_TIMEOUT_MS: Final = 15_000
POLL_MS: Final = 500
"""Poll timeout during catch-up. The missing offsets may be control records, which a consumer never receives.
"""
READS_APART_S: Final = 0.1
"""Interval of reads while records keep coming: each costs the loop a millisecond, however many it brings."""
LONG_POLL_MS: Final = 10_000
"""Time a broker holds an empty fetch. Each round costs the loop half a millisecond.

CHECK_WITHIN_S and the time-out of a request must be longer, because a broker answers the requests of a connection in
order.
"""
CHECK_EVERY_S: Final = 10.0
"""Interval of requests for the topic; aiokafka does not report connection trouble."""
CHECK_WITHIN_S: Final = 11.0
CHECKED_PARTITIONS: Final = 3
PARTITION_FETCH_BYTES: Final = 1024 * 1024
FETCH_BYTES: Final = 8 * 1024 * 1024
STOP_WITHIN_S: Final = 1.0
_CREATE_TIME: Final = 0


@dataclass(frozen=True, slots=True)
class StartAt:
    """Start position: these offsets, then this wall clock time, then the beginning.

    Partitions without an offset start at the time if there is one. A missing offset (deleted by retention, or
    the topic was recreated) means the beginning.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    wall_ms: int | None = None


OnRecords = Callable[[list[EventRecord]], None]


class _MorePartitions(Exception):
    """The topic has new partitions."""


class _CallbackFailed(Exception):
    """A callback raised `error`; the topic works."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class EventFollower:
    """Follower of one topic; `run` is called once, in a task."""

    def __init__(self, kafka: OwnClient, topic: GatewayTopic) -> None:
        self._kafka = kafka
        self._topic = topic
        lines = topic.lines
        self._availability = Availability(topic.name, "reading", lines.unavailable, lines.available)
        # The library has no types, so its objects are Any here.
        self._consumer: Any = None
        self._partition: Callable[[int], Any] = int
        self._start = StartAt()
        self._next: dict[int, int] = {}
        self._applied: list[int] | None = []
        """`applied_offsets`, which each decision writes down. None: `_next` has changed since."""
        self._lagging: dict[int, int] = {}
        """partition -> end offset at session start, until it is reached."""
        self.is_caught_up = False
        """Whether all records present at the first connection have been delivered."""
        self.followed = 0
        """Number of delivered records."""
        self.is_connected = False

    @property
    def applied_offsets(self) -> list[int]:
        """Per partition, the offset of the next record to deliver; 0 if unknown."""
        if self._applied is None:
            self._applied = [self._next.get(number, 0) for number in range(max(self._next, default=-1) + 1)]
        return self._applied

    @property
    def last_failure(self) -> str:
        """The reason the topic cannot be read; empty while it can."""
        return self._availability.last_failure

    async def run(self, start: StartAt, on_records: OnRecords, on_caught_up: Callable[[], None]) -> None:
        """Read until cancelled. Raises exceptions of the callbacks.

        `on_caught_up` is called once, when every partition has reached its end offset at the start.
        """
        await load()
        from aiokafka import TopicPartition

        self._start, self._on_records, self._on_caught_up = start, on_records, on_caught_up
        self._partition = partial(TopicPartition, self._topic.name)
        while True:
            try:
                await self._session()
            except _CallbackFailed as failed:
                raise failed.error from None
            except _MorePartitions:
                continue
            except Exception as error:  # noqa: BLE001 - whatever ends a session, the next one tries again
                cause = explain_error(error, "reading", self._topic.name)
                self.is_connected = False
                await asyncio.sleep(self._availability.record_failure(cause))

    def _works(self) -> None:
        self.is_connected = True
        self._availability.record_success()

    async def _session(self) -> None:
        """Read with one consumer until it fails. Raises the failure."""
        self._lagging.clear()
        await self._topic.ensure_topic(self._kafka)
        self._consumer = self._kafka.consumer(
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_uncommitted",
            # Brokers verified the CRC on append; checking a million events again would cost 0.3 s.
            check_crcs=False,
            fetch_max_bytes=FETCH_BYTES,
            fetch_max_wait_ms=LONG_POLL_MS,
            # Idle wake-up interval of the fetcher, which the next answer wakes anyway; 200 ms by default.
            consumer_timeout_ms=round(CHECK_EVERY_S * 1000),
            max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=60_000,
        )
        try:
            # Assign before start, so that start waits for the topic's metadata.
            self._assign([0])
            await self._consumer.start()
            await self._take_places()
            await self._read()
        finally:
            self.is_connected = False
            await stop_client(self._consumer, STOP_WITHIN_S)

    # Start positions

    def _assign(self, numbers: list[int]) -> list[Any]:
        """Assign partitions, and fetch none of them yet: requests for offsets would wait behind the long poll."""
        partitions = [self._partition(number) for number in numbers]
        self._consumer.assign(partitions)
        self._consumer.pause(*partitions)
        return partitions

    async def _take_places(self) -> None:
        """Assign all partitions, seek each to its start position, and fetch them."""
        known = self._next
        numbers = sorted(self._consumer.partitions_for_topic(self._topic.name))
        partitions = self._assign(numbers)
        if not self.is_caught_up or any(number not in known for number in numbers):
            await self._find_first_places(numbers)
        for number in numbers:
            self._consumer.seek(self._partition(number), known[number])
        self._consumer.resume(*partitions)

    async def _find_first_places(self, numbers: list[int]) -> None:
        partitions = [self._partition(number) for number in numbers]
        first = await self._consumer.beginning_offsets(partitions)
        end = await self._consumer.end_offsets(partitions)
        by_time: dict[Any, Any] = {}
        if self._start.wall_ms is not None and not self._next:
            by_time = await self._consumer.offsets_for_times(dict.fromkeys(partitions, self._start.wall_ms))
        known = dict(self._next)
        for number, partition in zip(numbers, partitions, strict=True):
            wanted = known.get(number, self._start.offsets.get(number))
            if wanted is None and partition in by_time:
                # No record that recent: start at the end.
                wanted = by_time[partition].offset if by_time[partition] else end[partition]
            known[number] = self._there_or_earliest(number, wanted, first[partition], end[partition])
            if known[number] < end[partition]:
                self._lagging[number] = end[partition]
        self._next.update(known)
        self._applied = None

    def _there_or_earliest(self, number: int, wanted: int | None, first: int, end: int) -> int:
        if wanted is None or first <= wanted <= end:
            return first if wanted is None else wanted
        log.warning(
            Event.EVENTS_OFFSETS_GONE, topic=self._topic.name, partition=number, offset=wanted, earliest=first
        )
        return first

    # Reading

    async def _read(self) -> None:
        # Runs in parallel with reading. A broker answers a connection's requests in order, so the check waits
        # for an empty fetch on that broker while others deliver records.
        checking: asyncio.Task[None] | None = None
        checked_at_s = monotonic_s()
        try:
            while True:
                self._notify_when_caught_up()
                wait_ms = POLL_MS if self._lagging else round(CHECK_EVERY_S * 1000)
                fetched = await self._consumer.getmany(timeout_ms=wait_ms, max_records=CHUNK_RECORDS)
                if fetched:
                    self._hand_over(fetched)
                    self._works()
                    await asyncio.sleep(0 if self._lagging else READS_APART_S)
                else:
                    await self._catch_up_without_records()
                if checking is not None and checking.done():
                    checking.result()
                    checking, checked_at_s = None, monotonic_s()
                elif checking is None and monotonic_s() - checked_at_s > CHECK_EVERY_S:
                    checking = asyncio.ensure_future(self._check())
        finally:
            if checking is not None and not checking.cancel() and not checking.cancelled():
                checking.exception()  # retrieved so that asyncio does not log it

    def _hand_over(self, fetched: Mapping[Any, list[Any]]) -> None:
        make = _keyed_record if self._topic.is_compacted else _record
        records = [
            make(record)
            for found in fetched.values()
            for record in found
            if record.value is not None or self._topic.is_compacted
        ]
        try:
            self._on_records(records)
        except Exception as error:
            raise _CallbackFailed(error) from error
        self.followed += len(records)
        self._applied = None
        for partition, found in fetched.items():
            number, last = partition.partition, found[-1]
            self._next[number] = last.offset + 1
            if self._lagging and self._lagging.get(number, last.offset + 2) <= last.offset + 1:
                del self._lagging[number]
            if last.timestamp_type == _CREATE_TIME:
                self._topic.timestamps_are_of_gateways()

    async def _catch_up_without_records(self) -> None:
        """Detect the end by the consumer's position, which passes over control records."""
        for number, end in list(self._lagging.items()):
            position = await self._consumer.position(self._partition(number))
            if position >= end:
                self._next[number] = max(self._next[number], position)
                self._applied = None
                del self._lagging[number]

    def _notify_when_caught_up(self) -> None:
        if self._lagging or self.is_caught_up:
            return
        self.is_caught_up = True
        try:
            self._on_caught_up()
        except Exception as error:
            raise _CallbackFailed(error) from error

    async def _check(self) -> None:
        """Request the end offsets of a few partitions.

        Raises if none is answered; one failed partition is tolerated.
        """
        numbers = sorted(self._consumer.partitions_for_topic(self._topic.name) or ())
        if len(numbers) > len(self._next):
            raise _MorePartitions
        failure: Exception | None = None
        asked = numbers or [0]
        for number in islice(asked, 0, None, max(1, len(asked) // CHECKED_PARTITIONS)):
            try:
                async with asyncio.timeout(CHECK_WITHIN_S):
                    await self._consumer.end_offsets([self._partition(number)])
            except Exception as error:  # noqa: BLE001 - raised below, when nobody else answers
                failure = error
            else:
                self._works()
                return
        assert failure is not None
        raise failure


def _record(record: Any) -> EventRecord:
    return EventRecord(record.partition, record.offset, record.timestamp, record.value)


def _keyed_record(record: Any) -> EventRecord:
    return EventRecord(
        record.partition, record.offset, record.timestamp, record.value or b"", record.key or b""
    )
