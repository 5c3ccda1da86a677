"""The topic: its partitions, identity and offsets by librdkafka's admin client, its records by consumers in the tasks.

Offsets are requested before each batch, so that a recreated topic is not read from the middle. Spark's own connector
costs five times as much per record: Java client, rows, and the transfer to Python.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from pidgate.pipeline.errors import TO_GO_ON, PipelineError, TopicLostData, TopicMissing, TopicSilent
from pidgate.pipeline.ingest.columns import Place, Record
from pidgate.pipeline.ingest.commits import Position

PATIENCE_S = 10.0
_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_SILENT = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
_SILENCE = logging.getLogger(f"{__name__}.librdkafka")
_SILENCE.addHandler(logging.NullHandler())
_SILENCE.propagate = False
Answer = TypeVar("Answer")
GROUP: Final = "pidgate-ingest"
"""Required by librdkafka. No offsets are committed to it."""
RECORDS_PER_TASK: Final = 50_000
READ_PATIENCE_S: Final = 60.0
"""Time without records after which reading fails. A new leader may briefly end before the requested offset."""
_AT_ONCE: Final = 5_000
_LOOK_EVERY_S: Final = 0.5
_QUEUE_KB: Final = 16_384
_FINAL: Final = (
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
"""Errors from librdkafka that do not resolve by waiting."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Per partition, the first available offset and the next one to be written."""

    first: Mapping[str, int]
    end: Mapping[str, int]


class Span(NamedTuple):
    """Offsets of one partition, or range(1) of a landed file."""

    partition: str
    offsets: range


def spans(wanted: Mapping[str, range], most: int = RECORDS_PER_TASK) -> list[list[Span]]:
    """Distribute offsets evenly over the fewest tasks with at most `most` each."""
    total = sum(map(len, wanted.values()))
    tasks = -(-total // most)
    each = -(-total // max(1, tasks))
    found: list[list[Span]] = [[] for _ in range(tasks)]
    room, task = each, 0
    for partition, offsets in sorted(wanted.items()):
        while offsets:
            if not room:
                room, task = each, task + 1
            part, offsets = offsets[:room], offsets[room:]
            found[task].append(Span(partition, part))
            room -= len(part)
    return found


class Topic:
    """One topic, and the librdkafka settings to read it."""

    tasks = staticmethod(spans)

    def __init__(
        self, bootstrap_servers: str, name: str, settings: Mapping[str, str], patience_s: float = PATIENCE_S
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.name = name
        self.settings = dict(settings)
        self._patience_s = patience_s
        self._last_error = ""
        ours: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "socket.timeout.ms": round(patience_s * 1000),
            "error_cb": self._note,
        }
        try:
            # Exceptions have the same messages.
            self._admin = AdminClient({**settings, **ours}, logger=_SILENCE)
        except (KafkaException, ValueError) as error:
            raise unreadable(name, bootstrap_servers, str(error)) from None

    def describe(self) -> tuple[str, Offsets]:
        """Return the topic's id, unique across recreation, and its offsets. Raises TopicMissing."""
        asked = self._admin.describe_topics(TopicCollection([self.name]), request_timeout=self._patience_s)
        found = self._answer(asked[self.name])
        partitions = sorted(partition.id for partition in found.partitions)
        earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        # In Java's alphabet, as in existing commits.
        topic_id = str(found.topic_id).translate(str.maketrans("+/", "-_"))
        return topic_id, Offsets(self._listed(partitions, earliest), self._listed(partitions, latest))

    def loss(self, position: Position, topic_id: str, offsets: Offsets) -> TopicLostData | None:
        return lost_data(self.name, position, topic_id, offsets)

    def share(self, waiting: Mapping[str, range], most: int) -> dict[str, range]:
        """Return each partition's share of a batch of `most` records."""
        total = sum(map(len, waiting.values()))
        if total <= most:
            return dict(waiting)
        return {p: one[: max(1, len(one) * most // total)] for p, one in waiting.items()}

    def reader(self, *, stop_at_loss: bool) -> Callable[[Sequence[Span]], Iterator[Record]]:
        """Return the reader of a task's records."""
        return Source(self.bootstrap_servers, self.name, self.settings, stop_at_loss=stop_at_loss).records

    def _listed(self, partitions: list[int], spec: OffsetSpec) -> dict[str, int]:
        places = {TopicPartition(self.name, number): spec for number in partitions}
        asked = self._admin.list_offsets(places, request_timeout=self._patience_s)
        return {str(place.partition): int(self._answer(answer).offset) for place, answer in asked.items()}

    def _answer(self, asked: Future[Answer]) -> Answer:
        try:
            return asked.result(2 * self._patience_s)
        except KafkaException as error:
            problem: Any = error.args[0]
        self._admin.poll(0)
        if problem.code() in _MISSING:
            raise TopicMissing(
                f"there is no topic {self.name!r} at {self.bootstrap_servers}. Gateways create it if `events.enabled` "
                "is true; --topic selects another name."
            )
        if problem.code() in _SILENT:
            raise TopicMissing(
                f"no response from {self.bootstrap_servers} within {self._patience_s:g} s "
                f"({self._last_error or problem.str()}). Check the brokers' addresses (--kafka) and their "
                "listener's security settings (--kafka-config)."
            )
        raise unreadable(self.name, self.bootstrap_servers, f"{problem.name()}: {problem.str()}")

    def _note(self, error: KafkaError) -> None:
        """Store the reason for missing responses: a request that waits for a login only times out."""
        self._last_error = error.str()


# In the tasks


@dataclass(frozen=True, slots=True)
class Source:
    """The topic as seen by a task. `settings` are librdkafka's. Sent to the tasks."""

    bootstrap_servers: str
    topic: str
    settings: Mapping[str, str]
    stop_at_loss: bool
    patience_s: float = READ_PATIENCE_S

    def records(self, wanted: Sequence[Span]) -> Iterator[Record]:
        """Yield the records at these offsets; some may be empty.

        Raises TopicLostData, TopicMissing, TopicSilent.
        """
        told: list[KafkaError] = []
        consumer = Consumer(
            {
                **self.settings,
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_uncommitted",
                "auto.offset.reset": "error" if self.stop_at_loss else "earliest",
                "allow.auto.create.topics": False,
                "queued.max.messages.kbytes": _QUEUE_KB,
                # By default a full queue is refilled only after a second.
                "fetch.queue.backoff.ms": 5,
                "log_level": 0,
                "error_cb": told.append,
            }
        )
        try:
            for span in wanted:
                yield from self._of_span(consumer, span, told)
        finally:
            consumer.close()

    def _of_span(self, consumer: Consumer, span: Span, told: Sequence[KafkaError]) -> Iterator[Record]:
        partition, offsets = int(span.partition), span.offsets
        consumer.assign([TopicPartition(self.topic, partition, offsets.start)])
        following, heard_s = offsets.start, time.monotonic()
        while following < offsets.stop:
            before = following
            messages: list[Any] = consumer.consume(min(_AT_ONCE, offsets.stop - following), _LOOK_EVERY_S)
            for message in messages:
                offset, error = message.offset(), message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise self._ended_by(error)
                # Records of the previous span may remain in the queue.
                if message.partition() != partition:
                    continue
                if error is None and offset in offsets:
                    kind, at_ms = message.timestamp()
                    append_time_ms = at_ms if kind == TIMESTAMP_LOG_APPEND_TIME else None
                    yield message.value(), Place(partition, offset, append_time_ms)
                # Offsets at the end of the log may have no records, for example transaction markers.
                following = max(following, offset if error is not None else offset + 1)
            for error in told:
                if error.code() in _FINAL:
                    raise self._ended_by(error)
            if following > before:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > self.patience_s:
                why = told[-1].str() if told else "no error from the brokers"
                raise TopicSilent(
                    f"partition {partition} of topic {self.topic!r} at {self.bootstrap_servers} returned nothing for "
                    f"{self.patience_s:g} s, neither offset {following} nor a later end ({why}). The batch "
                    "was not ingested. Restart ingest when the brokers respond."
                )

    def _ended_by(self, error: KafkaError) -> PipelineError:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            return TopicLostData(
                f"topic {self.topic!r} lost data while it was read: {error.str()}. {TO_GO_ON}"
            )
        return unreadable(self.topic, self.bootstrap_servers, error.str())


# Errors


def lost_data(name: str, position: Position, topic_id: str, offsets: Offsets) -> TopicLostData | None:
    """Return the error if the topic no longer holds the next offsets, otherwise None. Pure."""
    recreated, truncated, deleted = [], [], []
    if position.topic_id and topic_id != position.topic_id:
        recreated = [
            f"the topic was recreated or is a different one (its id is {topic_id}, was {position.topic_id})"
        ]
    for p, following in sorted(position.next_offsets.items()):
        first, end = offsets.first.get(p, 0), offsets.end.get(p, 0)
        if following > end:
            truncated.append(f"partition {p} ends at offset {end}, before {following}, which comes next")
        elif following < first:
            deleted.append(
                f"partition {p}: offsets {following} to {first - 1} ({first - following} records) were deleted before "
                "they were read"
            )
    problems = recreated or truncated or deleted
    return TopicLostData(f"topic {name!r} lost data: {'; '.join(problems)}. {TO_GO_ON}") if problems else None


def unreadable(topic: str, bootstrap_servers: str, reason: str) -> TopicMissing:
    """Return the error. librdkafka's messages contain setting names, but no secrets."""
    return TopicMissing(
        f"topic {topic!r} at {bootstrap_servers} cannot be read: {reason}. Check --kafka, --kafka-config and the "
        f"user's permissions: Describe and Read on the topic, Read on the group {GROUP}."
    )
