"""Topic records by offset, read with librdkafka in the tasks.

Spark's own connector costs five times as much per record: Java client, rows, and the transfer to Python.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, TopicPartition

from pidgate.pipeline.errors import TO_GO_ON, PipelineError, TopicLostData, TopicMissing, TopicSilent
from pidgate.pipeline.ingest.columns import Place, Record

GROUP: Final = "pidgate-ingest"
"""Required by librdkafka. No offsets are committed to it."""
RECORDS_PER_TASK: Final = 50_000
PATIENCE_S: Final = 60.0
"""Time without records after which reading fails. A new leader may briefly end before the requested offset.
"""
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


@dataclass(frozen=True, slots=True)
class Source:
    """The topic as seen by a task. `settings` are librdkafka's. Sent to the tasks."""

    bootstrap_servers: str
    topic: str
    settings: Mapping[str, str]
    stop_at_loss: bool
    patience_s: float = PATIENCE_S

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


def unreadable(topic: str, bootstrap_servers: str, reason: str) -> TopicMissing:
    """Return the error. librdkafka's messages contain setting names, but no secrets."""
    return TopicMissing(
        f"topic {topic!r} at {bootstrap_servers} cannot be read: {reason}. Check --kafka, --kafka-config and the "
        f"user's permissions: Describe and Read on the topic, Read on the group {GROUP}."
    )
