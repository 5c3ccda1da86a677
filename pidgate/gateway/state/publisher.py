"""Publisher of events to the topic, never in the way of traffic: bounded, batched, retried for ever.

`publish` only appends to a bounded store; all else happens in `run`. Events of one key reach one partition in order. A
batch whose fate is unknown is sent again: readers find duplicates by (incarnation, seq). Not idempotent on purpose: the
gateway's own client takes no producer id from the cluster.
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
"""Events come together; a batch of them costs little more than one."""
BATCHES_APART_S: Final = 0.02
"""While events keep coming: a batch, and reading it again as a follower, cost each event loop as much as several
decisions do."""
REQUEST_TIMEOUT_MS: Final = 10_000
BATCH_BYTES: Final = 256 * 1024
RETRY_S: Final = 0.5
WITHOUT_ANSWER_S: Final = 15.0
"""After so long without any acknowledgement the client is replaced, from the bootstrap servers: one that only knows
addresses that are gone would ask them for ever."""
LOG_DROPPED_EVERY_S: Final = 10.0
STOP_WITHIN_S: Final = 1.0

_NEVER_TAKEN: Final = frozenset({2, 10, 18, 32, 43, 87})
"""CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP,
UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD: about what is in the batch, so sending it again is no use."""


class EventPublisher:
    """`publish` at any time, also before and between runs; `run` in a task."""

    def __init__(self, kafka: OwnClient, topic: EventTopic) -> None:
        self._kafka = kafka
        self._topic = topic
        self._waiting = RecordAccumulator(_partition_of)
        self._arrived = asyncio.Event()
        self._availability = Availability(topic.name, "writing")
        self._answered_at_s = 0.0
        self._dropped_logged = 0
        self.published = 0
        """Events that the brokers acknowledged."""
        self.is_connected = False
        """The topic is known, and the last attempt to write to it did not fail."""

    def publish(self, key: str, value: bytes) -> None:
        """Take an event; without room it is dropped and counted. Neither waits nor raises."""
        self._waiting.put(key, value)
        if not self._arrived.is_set():
            self._arrived.set()

    @property
    def dropped(self) -> int:
        """Events that were given up: no room, or too large for the topic."""
        return self._waiting.dropped

    @property
    def taken(self) -> int:
        """Events that were not dropped at once: acknowledged, given up later, or waiting."""
        return self._waiting.numbered

    @property
    def oldest_unsent(self) -> int:
        """How many events were taken before the oldest that is not acknowledged yet; `taken` when all are."""
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
        """The reason why events cannot be written; empty while they can."""
        return self._availability.last_failure

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything published so far is acknowledged or dropped; False when time ran out."""
        give_up_s = monotonic_s() + timeout_s
        while self._waiting.events:
            if monotonic_s() >= give_up_s:
                return False
            await asyncio.sleep(0.01)
        return True

    async def run(self) -> None:
        """Write for ever, until cancelled; failures are logged, and retried."""
        await load()
        logging_drops = asyncio.ensure_future(self._log_drops())
        try:
            while True:
                try:
                    await self._session()
                except Exception as error:  # noqa: BLE001 - whatever ends a session, the next one tries again
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
        """Connect and write until a failure that does not pass. Raises what ended it."""
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
            # What an earlier session left behind waits for no new event.
            self._arrived.set()
            await self._write(producer)
        except Exception:
            # Its batches have to run out of time before it can stop; meanwhile nothing is lost here.
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
        """Write until the queue is empty. Raises KafkaError when nothing was acknowledged for WITHOUT_ANSWER_S."""
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
        """Halve a batch that the brokers will never take; drop an event that they do not take alone."""
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
    """Return a batch of as many of these events as it has room for, never none, and their number."""
    batch = producer.create_batch()
    taken = 0
    for event in events:
        if batch.append(key=event.key, value=event.value, timestamp=None) is None:
            break
        taken += 1
    batch.close()
    return batch, taken


async def _acknowledged(sent: asyncio.Future[Any]) -> None:
    """Wait for the acknowledgement. Raises why there is none.

    A batch that nobody awaits any more still fails some day, and its exception has to be retrieved.
    """
    sent.add_done_callback(lambda done: done.cancelled() or done.exception())
    # Not awaited itself: that would cancel it with this task.
    await asyncio.wait([sent])
    sent.result()


def _partition_of(key: bytes, partitions: int) -> int:
    from aiokafka.partitioner import DefaultPartitioner

    all_partitions = list(range(partitions))
    chosen: int = DefaultPartitioner()(key, all_partitions, all_partitions)
    return chosen
