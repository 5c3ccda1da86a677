"""Records of the topic by their offsets, read by librdkafka where the tasks run.

Not by Spark's own connector: its Java client, rows, and their way into Python cost five times as much for each record.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from pidgate.pipeline.errors import TO_GO_ON, PipelineError, TopicLostData, TopicMissing, TopicSilent
from pidgate.pipeline.ingest.columns import Place, Record

GROUP: Final = "pidgate-ingest"
"""librdkafka wants one. Nothing is committed to it."""
RECORDS_PER_TASK: Final = 50_000
PATIENCE_S: Final = 60.0
"""Nothing came for so long: given up. A new leader may end before the offset that is wanted, for an instant."""
_AT_ONCE: Final = 5_000
_LOOK_EVERY_S: Final = 0.5
_QUEUE_KB: Final = 16_384
_FINAL: Final = (
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
"""Errors that librdkafka gives beside the records, and that waiting does not mend."""


class Span(NamedTuple):
    """Offsets of one partition."""

    partition: int
    offsets: range


def spans(wanted: Mapping[int, range], most: int = RECORDS_PER_TASK) -> list[list[Span]]:
    """Share offsets out to tasks: as few as have no more than `most` each, and each as much as the others."""
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
    """The topic, as a task reaches it. `settings` are librdkafka's. Sent to the tasks."""

    bootstrap_servers: str
    topic: str
    settings: Mapping[str, str]
    stop_at_loss: bool
    patience_s: float = PATIENCE_S

    def records(self, wanted: Sequence[Span]) -> Iterator[Record]:
        """Yield what these offsets have; some may have none. Raises TopicLostData, TopicMissing, TopicSilent."""
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
                # Else a queue that was full is filled again a second later.
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
        partition, offsets = span
        consumer.assign([TopicPartition(self.topic, partition, offsets.start)])
        following, heard_s = offsets.start, time.monotonic()
        while following < offsets.stop:
            before = following
            messages: list[Any] = consumer.consume(min(_AT_ONCE, offsets.stop - following), _LOOK_EVERY_S)
            for message in messages:
                offset, error = message.offset(), message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise self._ended_by(error)
                # Of the span before some may still be there.
                if message.partition() != partition:
                    continue
                if error is None and offset in offsets:
                    yield message.value(), Place(partition, offset, message.timestamp()[1])
                # At the end of the log offsets may have no records: transactions leave such ones.
                following = max(following, offset if error is not None else offset + 1)
            for error in told:
                if error.code() in _FINAL:
                    raise self._ended_by(error)
            if following > before:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > self.patience_s:
                why = told[-1].str() if told else "brokers said nothing"
                raise TopicSilent(
                    f"partition {partition} of topic {self.topic!r} at {self.bootstrap_servers} gave nothing for "
                    f"{self.patience_s:g} s, neither offset {following} nor an end behind it ({why}). The batch "
                    "was not taken. Start ingest again when the brokers answer."
                )

    def _ended_by(self, error: KafkaError) -> PipelineError:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            return TopicLostData(
                f"topic {self.topic!r} lost data while it was read: {error.str()}. {TO_GO_ON}"
            )
        return unreadable(self.topic, self.bootstrap_servers, error.str())


def unreadable(topic: str, bootstrap_servers: str, reason: str) -> TopicMissing:
    """librdkafka's messages name settings, and no secrets."""
    return TopicMissing(
        f"topic {topic!r} at {bootstrap_servers} cannot be read: {reason}. Look at --kafka, --kafka-config and the "
        f"user's rights: Describe and Read on the topic, Read on the group {GROUP}."
    )
