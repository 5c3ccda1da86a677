"""Comparison of producer responses with the log.

The checker takes journals (the responses of each producer) and the log as read directly from the brokers,
never through the gateway. Any acknowledged record that is missing, doubled or out of order fails the verdict.
The log is read with librdkafka, which shares no code with the project.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from pidgate.load.journal import Entry, Key, Label, Outcome, ProducerJournal, read_value

Isolation = Literal["read_uncommitted", "read_committed"]


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record on the broker."""

    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Finding:
    """A record whose journal entry and log differ."""

    producer: str
    partition: int | None
    n: int
    offset: int = -1
    note: str = ""

    def __str__(self) -> str:
        place = f" at {self.offset}" if self.offset >= 0 else ""
        note = f" ({self.note})" if self.note else ""
        return f"{self.producer} #{self.n} in partition {self.partition}{place}{note}"


@dataclass(slots=True)
class Verdict:
    """Result of the comparison. Every field before `raised_but_written` is a fault."""

    missing: list[Finding] = field(default_factory=list)
    """Acknowledged, not in the log."""
    doubled: list[Finding] = field(default_factory=list)
    """In the log more than once, acknowledged or not; each record was sent once."""
    out_of_order: list[Finding] = field(default_factory=list)
    """Acknowledged, but after a higher acknowledged number of the same producer and partition."""
    misplaced: list[Finding] = field(default_factory=list)
    """Acknowledged with a different offset, or in a different partition than sent to."""
    never_sent: list[Finding] = field(default_factory=list)
    """In the log with the name of a producer that did not send it."""
    damaged: list[LogRecord] = field(default_factory=list)
    """Values of another format; empty unless the caller requires a topic with only valid ones."""
    unexpected: list[Finding] = field(default_factory=list)
    """In the log although the record failed, if the caller does not allow that."""

    raised_but_written: list[Finding] = field(default_factory=list)
    """The same if it is allowed: a timeout does not tell the broker's outcome."""
    unknown: list[Finding] = field(default_factory=list)
    """Sent, but neither acknowledged nor failed, because the producer was killed or disconnected.

    In the log or not.
    """
    acknowledged: int = 0
    in_log: int = 0
    """Records of the producers with a journal."""
    others_in_log: int = 0

    FAULTS = ("missing", "doubled", "out_of_order", "misplaced", "never_sent", "damaged", "unexpected")

    @property
    def is_good(self) -> bool:
        return not any(getattr(self, fault) for fault in self.FAULTS)

    def summary(self) -> str:
        """Return one line with all counts."""
        faults = ", ".join(f"{len(getattr(self, fault))} {fault.replace('_', ' ')}" for fault in self.FAULTS)
        return (
            f"{self.acknowledged} acknowledged, {self.in_log} in the log: {faults}; "
            f"{len(self.raised_but_written)} raised but written, {len(self.unknown)} of unknown outcome"
        )


def check(
    journals: Iterable[ProducerJournal],
    log: Sequence[LogRecord],
    *,
    raised_may_be_written: bool = True,
    only_ours: bool = False,
    same_offsets: bool = True,
) -> Verdict:
    """Compare journals with one topic's log, which must be in offset order within each partition.

    raised_may_be_written: False if a failure means "not written", as for an aborted transaction read with
    read_committed. only_ours: every value in the topic must be readable. same_offsets: False for a copy of
    the topic, whose offsets differ.
    """
    verdict = Verdict()
    by_producer = _sort_by_producer(log, verdict if only_ours else None)
    for journal in journals:
        written = by_producer.pop(journal.producer, [])
        verdict.in_log += len(written)
        _check_producer(journal, written, raised_may_be_written, same_offsets, verdict)
    verdict.others_in_log = sum(map(len, by_producer.values()))
    return verdict


Written = tuple[Label, LogRecord]


def _sort_by_producer(log: Iterable[LogRecord], damaged_to: Verdict | None) -> dict[str, list[Written]]:
    by_producer: dict[str, list[Written]] = defaultdict(list)
    for record in log:
        label = read_value(record.value)
        if label is not None:
            by_producer[label.producer].append((label, record))
        elif damaged_to is not None:
            damaged_to.damaged.append(record)
    return by_producer


def _check_producer(
    journal: ProducerJournal,
    written: Sequence[Written],
    raised_may_be_written: bool,
    same_offsets: bool,
    verdict: Verdict,
) -> None:
    name = journal.producer
    seen: dict[Key, int] = {}
    highest: dict[int, int] = {}
    for label, record in written:
        found = Finding(name, record.partition, label.n, record.offset)
        key = (record.partition, label.n)
        if key in seen:
            verdict.doubled.append(replace(found, note=f"first at {seen[key]}"))
            continue
        seen[key] = record.offset
        if label.partition not in (None, record.partition):
            verdict.misplaced.append(replace(found, note=f"sent to partition {label.partition}"))
        entry = _entry(journal, record.partition, label.n)
        if entry is None:
            (verdict.never_sent if journal.knows_sent else verdict.unknown).append(found)
        elif entry.outcome is Outcome.FAILED:
            allowed = verdict.raised_but_written if raised_may_be_written else verdict.unexpected
            allowed.append(replace(found, note=entry.error))
        elif entry.outcome is Outcome.ACKNOWLEDGED:
            if same_offsets and 0 <= entry.offset != record.offset:
                verdict.misplaced.append(replace(found, note=f"acknowledged at {entry.offset}"))
            before = highest.get(record.partition, -1)
            if label.n < before:
                verdict.out_of_order.append(replace(found, note=f"behind #{before}"))
            highest[record.partition] = max(before, label.n)
    for (partition, n), entry in journal.entries.items():
        if entry.outcome is Outcome.ACKNOWLEDGED:
            verdict.acknowledged += 1
            if not _was_seen(seen, partition, n):
                verdict.missing.append(Finding(name, partition, n, note=f"acknowledged at {entry.offset}"))
        elif entry.outcome is Outcome.SENT:
            note = "in the log" if _was_seen(seen, partition, n) else "not in the log"
            verdict.unknown.append(Finding(name, partition, n, note=note))


def _entry(journal: ProducerJournal, partition: int, n: int) -> Entry | None:
    return journal.entries.get((partition, n)) or journal.entries.get((None, n))


def _was_seen(seen: Mapping[Key, int], partition: int | None, n: int) -> bool:
    if partition is not None:
        return (partition, n) in seen
    return any(number == n for _, number in seen)


def read_log(
    bootstrap_servers: str,
    topic: str,
    *,
    isolation: Isolation = "read_uncommitted",
    timeout_s: float = 60.0,
    settings: Mapping[str, Any] | None = None,
) -> list[LogRecord]:
    """Read the whole topic to its end (to the last stable offset with read_committed), by partition.

    Read from the brokers rather than the gateway. `settings` go to librdkafka, for example for SASL. Raises
    TimeoutError if the end was not reached, KafkaException for errors.
    """
    read = stream_log(bootstrap_servers, topic, isolation=isolation, timeout_s=timeout_s, settings=settings)
    return sorted(read, key=attrgetter("partition"))


def stream_log(
    bootstrap_servers: str,
    topic: str,
    *,
    isolation: Isolation = "read_uncommitted",
    timeout_s: float = 60.0,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[LogRecord]:
    """Read as `read_log` does, but keep nothing: records come in order within each partition only."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "log-checker",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            **(settings or {}),
        }
    )
    try:
        yield from _read_to_end(consumer, topic, time.monotonic() + timeout_s)
    finally:
        consumer.close()


def _read_to_end(consumer: Any, topic: str, give_up_s: float) -> Iterator[LogRecord]:
    metadata = consumer.list_topics(topic, timeout=60).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    unfinished = set(metadata.partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in sorted(unfinished)])
    while unfinished:
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"{topic}: the end of partitions {sorted(unfinished)} was not reached")
        for message in consumer.consume(num_messages=10_000, timeout=0.2):
            error = message.error()
            if error is None:
                yield LogRecord(message.partition(), message.offset(), message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            elif not error.retriable():
                raise KafkaException(error)
