"""Publisher of events to the topic, without delaying traffic: bounded, batched, retried forever.

`publish` only appends to a bounded store; all other work happens in `run`. Events of one key reach one
partition in order. A batch with an unknown outcome is sent again: readers recognise duplicates by
(incarnation, seq). The producer is deliberately not idempotent: the gateway's own client takes no producer id
from the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.state.events_topic import EventTopic
from pidgate.gateway.state.record_accumulator import PartitionQueue, RecordAccumulator, Waiting
from pidgate.gateway.topics.availability import Availability, explain_error, load, stop_client
from pidgate.gateway.topics.own_client import OwnClient

log = logger()

LINGER_S: Final = 0.005
"""Events arrive together, and a batch costs little more than one event."""
BATCHES_APART_S: Final = 0.05
"""Interval while events keep coming: a batch, and reading it back as a follower, costs each event loop as
much as several decisions. Other gateways learn of an admission up to this much later."""
REQUEST_TIMEOUT_MS: Final = 10_000
BATCH_BYTES: Final = 256 * 1024
RETRY_S: Final = 0.5
WITHOUT_ANSWER_S: Final = 15.0
"""After this long without any acknowledgement the client is replaced, starting from the bootstrap servers. A
client with outdated addresses would otherwise try them forever."""
LOG_DROPPED_EVERY_S: Final = 10.0
STOP_WITHIN_S: Final = 1.0

_NEVER_TAKEN: Final = frozenset({2, 10, 18, 32, 43, 87})
"""CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP,
UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD: caused by the batch itself, so a retry cannot succeed."""


class EventPublisher:
    """Call `publish` at any time, also before and between runs; `run` in a task."""

    def __init__(self, kafka: OwnClient, topic: EventTopic) -> None:
        self._kafka = kafka
        self._topic = topic
        self._waiting = RecordAccumulator(_partition_of)
        self._arrived = asyncio.Event()
        self._availability = Availability(topic.name, "writing")
        self._answered_at_s = 0.0
        self._dropped_logged = 0
        self.published = 0
        """Events acknowledged by the brokers."""
        self.is_connected = False
        """The topic is known, and the last attempt to write to it did not fail."""

    def publish(self, key: str, value: bytes) -> None:
        """Accept an event. Without room it is dropped and counted. Neither waits nor raises."""
        self._waiting.put(key, value)
        if not self._arrived.is_set():
            self._arrived.set()

    @property
    def dropped(self) -> int:
        """Dropped events: no room, or too large for the topic."""
        return self._waiting.dropped

    @property
    def taken(self) -> int:
        """Events not dropped on arrival: acknowledged, dropped later, or waiting."""
        return self._waiting.numbered

    @property
    def oldest_unsent(self) -> int:
        """Number of events taken before the oldest unacknowledged one; `taken` when all are acknowledged."""
        return self._waiting.oldest

    @property
    def buffered(self) -> int:
        """Events not acknowledged yet."""
        return self._waiting.events

    @property
    def buffered_bytes(self) -> int:
        return self._waiting.size_bytes

    @property
    def last_failure(self) -> str:
        """Reason why events cannot be written; empty while they can."""
        return self._availability.last_failure

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all events so far are acknowledged or dropped. False: time ran out."""
        give_up_s = monotonic_s() + timeout_s
        while self._waiting.events:
            if monotonic_s() >= give_up_s:
                return False
            await asyncio.sleep(0.01)
        return True

    async def run(self) -> None:
        """Write until cancelled. Failures are logged and retried."""
        await load()
        logging_drops = asyncio.ensure_future(self._log_drops())
        try:
            while True:
                try:
                    await self._session()
                except Exception as error:  # noqa: BLE001 - the next session retries
                    await asyncio.sleep(self._failed(error))
        finally:
            logging_drops.cancel()
            self._log_dropped()

    def _failed(self, error: BaseException) -> float:
        self.is_connected = False
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        cause = explain_error(error, "writing", self._topic.name)
        return self._availability.record_failure(cause, buffered=self.buffered, dropped=self.dropped)

    async def _session(self) -> None:
        """Connect and write until a permanent failure. Raises it."""
        await self._topic.ensure_topic(self._kafka)
        producer = self._kafka.producer(
            acks="all",
            enable_idempotence=False,
            max_batch_size=BATCH_BYTES,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=60_000,
        )
        wait_s = STOP_WITHIN_S
        try:
            await producer.start()
            self._waiting.shape(len(await producer.partitions_for(self._topic.name)))
            self._answered_at_s = monotonic_s()
            self.is_connected = not self.last_failure
            # Events left by an earlier session are sent without waiting for a new one.
            self._arrived.set()
            await self._write(producer)
        except Exception:
            # Its batches have to time out before it can stop; their events stay queued here.
            wait_s = REQUEST_TIMEOUT_MS / 1000 + 2
            raise
        finally:
            self.is_connected = False
            await stop_client(producer, wait_s)

    async def _write(self, producer: Any) -> None:
        sent_at_s = 0.0
        async with asyncio.TaskGroup() as writing:
            while True:
                await self._arrived.wait()
                await asyncio.sleep(max(LINGER_S, sent_at_s + BATCHES_APART_S - monotonic_s()))
                sent_at_s = monotonic_s()
                self._arrived.clear()
                for queue in self._waiting.ready():
                    queue.is_busy = True
                    writing.create_task(self._write_queue(producer, queue))

    async def _write_queue(self, producer: Any, queue: PartitionQueue) -> None:
        """Write until the queue is empty.

        Raises KafkaError when nothing was acknowledged for WITHOUT_ANSWER_S.
        """
        from aiokafka.errors import KafkaError

        while queue.events:
            batch, events = _filled(producer, queue.first())
            try:
                await _acknowledged(
                    await producer.send_batch(batch, self._topic.name, partition=queue.partition)
                )
            except KafkaError as error:
                if getattr(error, "errno", None) in _NEVER_TAKEN:
                    self._split(queue, events, error)
                    continue
                if monotonic_s() - self._answered_at_s > WITHOUT_ANSWER_S:
                    raise
                self._failed(error)
                await asyncio.sleep(RETRY_S)
                continue
            self._waiting.leave(queue, events)
            self.published += events
            self._answered_at_s = monotonic_s()
            self.is_connected = True
            self._availability.record_success(buffered=self.buffered, dropped=self.dropped)
        queue.is_busy = False

    def _split(self, queue: PartitionQueue, events: int, error: Exception) -> None:
        """Halve a batch that the brokers permanently refuse; drop a single event that they refuse."""
        if events > 1:
            queue.most = max(1, events // 2)
            return
        self._waiting.leave(queue, 1)
        self._waiting.drop(f"the brokers do not take it: {error}")

    async def _log_drops(self) -> None:
        while True:
            await asyncio.sleep(LOG_DROPPED_EVERY_S)
            self._log_dropped()

    def _log_dropped(self) -> None:
        dropped = self._waiting.dropped
        if dropped > self._dropped_logged:
            log.error(
                Event.EVENTS_DROPPED,
                topic=self._topic.name,
                dropped=dropped - self._dropped_logged,
                dropped_total=dropped,
                reason=self._waiting.last_drop,
            )
            self._dropped_logged = dropped


def _filled(producer: Any, events: Iterator[Waiting]) -> tuple[Any, int]:
    """Return a batch of as many of these events as fit, at least one, and their number."""
    batch = producer.create_batch()
    taken = 0
    for event in events:
        if batch.append(key=event.key, value=event.value, timestamp=None) is None:
            break
        taken += 1
    batch.close()
    return batch, taken


async def _acknowledged(sent: asyncio.Future[Any]) -> None:
    """Wait for the acknowledgement. Raises the reason when there is none.

    An abandoned batch may still fail later, and its exception has to be retrieved.
    """
    sent.add_done_callback(lambda done: done.cancelled() or done.exception())
    # Not awaited directly: that would cancel it with this task.
    await asyncio.wait([sent])
    sent.result()


def _partition_of(key: bytes, partitions: int) -> int:
    from aiokafka.partitioner import DefaultPartitioner

    all_partitions = list(range(partitions))
    chosen: int = DefaultPartitioner()(key, all_partitions, all_partitions)
    return chosen
