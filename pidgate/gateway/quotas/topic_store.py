"""The topic of quotas set at run time, with its reader and writer.

It has one partition, whose order is the order of changes, and is compacted by key. Of each key only the
newest waiting record is written. The producer is deliberately not idempotent: the gateway's own client takes
no producer id from the cluster, and a record written twice is harmless (change_log.py). This module does not
know the meaning of records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event
from pidgate.gateway.topics.availability import Availability, explain_error, load, stop_client
from pidgate.gateway.topics.follower import EventFollower, OnRecords, StartAt
from pidgate.gateway.topics.gateway_topic import GatewayTopic, TopicLines
from pidgate.gateway.topics.own_client import OwnClient

PARTITION: Final = 0
"""The only partition used, even if an existing topic has more: between partitions there is no order."""
_DAY_MS: Final = 86_400_000
REQUEST_TIMEOUT_MS: Final = 5_000
STOP_WITHIN_S: Final = 1.0
_NEVER_TAKEN: Final = frozenset({2, 10, 18, 32, 43, 87})
"""CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP,
UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD: caused by the record itself, so a retry cannot succeed."""


@dataclass(slots=True)
class QuotasTopic(GatewayTopic):
    """The quotas topic: small, and needed as a whole forever."""

    lines: ClassVar[TopicLines] = TopicLines(
        Event.QUOTAS_TOPIC_CREATED,
        Event.QUOTAS_TOPIC_UNSAFE,
        Event.QUOTAS_TOPIC_UNAVAILABLE,
        Event.QUOTAS_TOPIC_AVAILABLE,
    )
    is_compacted: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: Settings) -> QuotasTopic:
        return cls(settings.events.quotas_topic, 1, settings.events.replication_factor)

    def timestamps_are_of_gateways(self) -> None:
        """Do nothing: no time is computed from them."""

    def _wanted(self, replicas: int) -> dict[str, str]:
        return {
            "cleanup.policy": "compact",
            # Only closed segments are compacted. Records are few, and old ones are useless.
            "segment.ms": str(_DAY_MS),
            # A gateway that was disconnected for days still reads the tombstones.
            "delete.retention.ms": str(7 * _DAY_MS),
            "min.insync.replicas": "2" if replicas >= 3 else "1",
            "compression.type": "producer",
        }

    def _unsafe(self, settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
        finding = partial(self._finding, settings)
        if settings.get("cleanup.policy", "compact") != "compact":
            reason = "gateways that start after a deletion by age do not see the deleted changes"
            yield finding("cleanup.policy", reason, "compact")
        yield from self._unreadable_compression(settings)


class Outgoing(NamedTuple):
    """A record to be written. `value` None is a tombstone.

    `on_end` gets None once the brokers have acknowledged it, or the reason why they never will.
    """

    key: bytes
    value: bytes | None
    on_end: Callable[[str | None], None]


class TopicStore:
    """Reader and writer of the quotas topic: `write` any time; `follow` and `write_all` once, in a task."""

    def __init__(self, kafka: OwnClient, topic: QuotasTopic) -> None:
        self._kafka = kafka
        self.topic = topic
        self.follower = EventFollower(kafka, topic)
        lines = topic.lines
        self._availability = Availability(topic.name, "writing", lines.unavailable, lines.available)
        self._waiting: dict[bytes, Outgoing] = {}
        self._arrived = asyncio.Event()

    @classmethod
    def from_settings(
        cls, settings: Settings, kafka: OwnClient, on_id: Callable[[bytes], None]
    ) -> TopicStore:
        topic = QuotasTopic.from_settings(settings)
        topic.on_id = on_id
        return cls(kafka, topic)

    @property
    def last_failure(self) -> str:
        """Cause of the last failed write or read; empty while both work."""
        return self._availability.last_failure or self.follower.last_failure

    @property
    def unwritten(self) -> int:
        return len(self._waiting)

    def write(self, outgoing: Outgoing) -> None:
        """Queue a record, replacing a queued one of the same key. Neither waits nor raises."""
        self._waiting.pop(outgoing.key, None)
        self._waiting[outgoing.key] = outgoing
        self._arrived.set()

    def withdraw(self, outgoing: Outgoing) -> None:
        """Remove a record from the queue. A record already being sent cannot be withdrawn."""
        if self._waiting.get(outgoing.key) is outgoing:
            del self._waiting[outgoing.key]

    async def follow(self, on_records: OnRecords, on_read: Callable[[], None]) -> None:
        """Read the topic from its beginning; call `on_read` once its end is reached."""
        await self.follower.run(StartAt(), on_records, on_read)

    async def write_all(self) -> None:
        """Write queued records, now and later, until cancelled."""
        await load()
        while True:
            await self._arrived.wait()
            try:
                await self._session()
            except Exception as error:  # noqa: BLE001 - the next session retries
                cause = explain_error(error, "writing", self.topic.name)
                await asyncio.sleep(self._availability.record_failure(cause, buffered=self.unwritten))

    async def _session(self) -> None:
        """Connect and write until a failure. Raises the failure."""
        await self.topic.ensure_topic(self._kafka)
        producer = self._kafka.producer(
            acks="all",
            enable_idempotence=False,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=60_000,
        )
        wait_s = STOP_WITHIN_S
        try:
            await producer.start()
            while True:
                await self._write_waiting(producer)
                self._arrived.clear()
                await self._arrived.wait()
        except Exception:
            # Its batches have to time out before it can stop; their records are written again.
            wait_s = REQUEST_TIMEOUT_MS / 1000 + 2
            raise
        finally:
            await stop_client(producer, wait_s)

    async def _write_waiting(self, producer: Any) -> None:
        """Write all queued records, in order. Raises when a record was not acknowledged."""
        while waiting := list(self._waiting.values()):
            sent: list[asyncio.Future[Any]] = []
            for one in waiting:
                sent.append(await producer.send(self.topic.name, one.value, one.key, partition=PARTITION))
                # Retrieves the exception, or asyncio logs it when this session ends early.
                sent[-1].add_done_callback(lambda done: done.cancelled() or done.exception())
            # Not awaited directly: that would cancel them with this task.
            await asyncio.wait(sent)
            failure: BaseException | None = None
            for one, future in zip(waiting, sent, strict=True):
                error = future.exception()
                if error is None:
                    self._end(one, None)
                elif getattr(error, "errno", None) in _NEVER_TAKEN:
                    self._end(one, f"the brokers do not take it: {error}")
                else:
                    failure = error
            if failure is not None:
                raise failure
            self._availability.record_success(buffered=self.unwritten)

    def _end(self, one: Outgoing, problem: str | None) -> None:
        self.withdraw(one)
        one.on_end(problem)

    async def flushed(self, within_s: float) -> bool:
        """Wait until the queue is empty; return False if it is not within `within_s`."""
        give_up_s = monotonic_s() + within_s
        while self._waiting:
            if monotonic_s() >= give_up_s:
                return False
            await asyncio.sleep(0.01)
        return True
