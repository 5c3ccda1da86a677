"""A journal of one producer: its sent, refused and acknowledged records, and the format of record values.

The process of a client fills it, and may write it to a file as JSON lines, which survives a kill. A log
checker compares it with the log of the brokers.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Self

_VALUE = re.compile(rb"^([^|]+)\|(\d+)\|(\d+)\|(\.*)$", re.DOTALL)
_VERIFIABLE_VALUE = re.compile(rb"^(\d+)\.(\d+)$")


@dataclass(frozen=True, slots=True)
class Label:
    """The contents of a value."""

    producer: str
    partition: int | None
    """None if the value does not contain it."""
    n: int


def record_value(producer: str, partition: int, n: int, size_bytes: int = 0) -> bytes:
    """Return a value with its producer's name, padded to the size. A changed byte makes it unreadable."""
    return f"{producer}|{partition}|{n}|".encode().ljust(size_bytes, b".")


def read_value(value: bytes) -> Label | None:
    """Return the label of a value by `record_value` or Kafka's VerifiableProducer, otherwise None."""
    if match := _VALUE.match(value):
        return Label(match[1].decode(errors="replace"), int(match[2]), int(match[3]))
    if match := _VERIFIABLE_VALUE.match(value):
        return Label(verifiable_name(int(match[1])), None, int(match[2]))
    return None


def verifiable_name(value_prefix: int) -> str:
    """Return the producer name for VerifiableProducer's numeric --value-prefix."""
    return f"verifiable-{value_prefix}"


class Outcome(StrEnum):
    SENT = "sent"
    """Passed to the client; no outcome (yet): in the log or not."""
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    """An exception, or an error in the delivery report."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that asks the producer to send the batch again later."""

    at_ms: int
    error_code: int
    throttle_time_ms: int
    message: str


@dataclass(slots=True)
class Entry:
    """The application's view of one record or batch. Times are time.monotonic() in ms, -1 for unknown."""

    outcome: Outcome
    offset: int = -1
    """Offset reported by the client, or negative."""
    error: str = ""
    sent_ms: int = -1
    settled_ms: int = -1
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        """Return whether the producer has stopped trying; without an answer the outcome stays SENT."""
        return self.settled_ms >= 0


Key = tuple[int | None, int]
"""Partition (None: unknown, or all) and number. Within a partition, numbers rise in the order of sending."""


class ProducerJournal:
    """Every record (or batch, by its producer id) of one producer to one topic."""

    def __init__(
        self, producer: str, topic: str = "", *, knows_sent: bool = True, file: IO[str] | None = None
    ) -> None:
        self.producer = producer
        self.topic = topic
        self.knows_sent = knows_sent
        """False when the client reports outcomes only: records without an entry may have been sent too."""
        self.entries: dict[Key, Entry] = {}
        self._file = file
        # Clients call back from their own threads.
        self._lock = threading.Lock()
        self._write({"event": "producer", "producer": producer, "topic": topic, "knows_sent": knows_sent})

    @classmethod
    def to_file(cls, path: Path, producer: str, topic: str = "", *, knows_sent: bool = True) -> Self:
        """Return a journal that is also written to a file, line by line, so that it survives a kill.

        Close it after use.
        """
        return cls(producer, topic, knows_sent=knows_sent, file=path.open("w", buffering=1))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a journal back. A last line that a kill has cut off is skipped."""
        with path.open() as lines:
            return cls.from_lines(lines)

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> Self:
        """Read a journal. Raises ValueError if the first line is not a producer line."""
        journal: Self | None = None
        for event in whole_lines(lines):
            if journal is None and event["event"] == "producer":
                journal = cls("")
            if journal is not None:
                journal.replay(event)
        if journal is None:
            raise ValueError("no journal: it does not begin with a producer line")
        return journal

    def sent(self, partition: int | None, n: int, *, at_ms: int | None = None) -> None:
        """Record a send. Raises ValueError for a repeated number."""
        at_ms = now_ms() if at_ms is None else at_ms
        with self._lock:
            if (partition, n) in self.entries:
                raise ValueError(f"{self.producer}: number {n} is used twice in partition {partition}")
            self.entries[partition, n] = Entry(Outcome.SENT, sent_ms=at_ms)
        self._write({"event": "sent", "partition": partition, "n": n, "at_ms": at_ms})

    def acknowledged(
        self, partition: int | None, n: int, offset: int | None = -1, *, at_ms: int | None = None
    ) -> None:
        at_ms = now_ms() if at_ms is None else at_ms
        offset = -1 if offset is None else offset
        entry = self._settle((partition, n), Outcome.ACKNOWLEDGED, at_ms)
        entry.offset = offset
        self._write(
            {"event": "acknowledged", "partition": partition, "n": n, "offset": offset, "at_ms": at_ms}
        )

    def failed(self, partition: int | None, n: int, error: object, *, at_ms: int | None = None) -> None:
        at_ms = now_ms() if at_ms is None else at_ms
        entry = self._settle((partition, n), Outcome.FAILED, at_ms)
        entry.error = str(error) or type(error).__name__
        self._write({"event": "failed", "partition": partition, "n": n, "error": entry.error, "at_ms": at_ms})

    def lost(self, partition: int | None, n: int, *, at_ms: int | None = None) -> None:
        """Record that the producer gave up without an answer to its last try: in the log or not."""
        at_ms = now_ms() if at_ms is None else at_ms
        self._settle((partition, n), Outcome.SENT, at_ms)
        self._write({"event": "lost", "partition": partition, "n": n, "at_ms": at_ms})

    def refused(
        self,
        partition: int | None,
        n: int,
        error_code: int,
        throttle_time_ms: int,
        message: str,
        *,
        at_ms: int | None = None,
    ) -> None:
        """Record an answer after which the producer retries."""
        refusal = Refusal(now_ms() if at_ms is None else at_ms, error_code, throttle_time_ms, message)
        with self._lock:
            self.entries[partition, n].refusals.append(refusal)
        self._write({"event": "refused", "partition": partition, "n": n, **asdict(refusal)})

    def count(self, outcome: Outcome) -> int:
        """Count the records with this current outcome."""
        return sum(entry.outcome is outcome for entry in self.entries.values())

    def errors(self) -> dict[str, int]:
        """Count the failed records by error text."""
        counts: dict[str, int] = {}
        for entry in self.entries.values():
            if entry.outcome is Outcome.FAILED:
                counts[entry.error] = counts.get(entry.error, 0) + 1
        return counts

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _settle(self, key: Key, outcome: Outcome, at_ms: int) -> Entry:
        with self._lock:
            entry = self.entries.setdefault(key, Entry(outcome))
            if entry.settled_ms >= 0:
                raise ValueError(f"{self.producer}: {key} was {entry.outcome} already, now {outcome}")
            entry.outcome = outcome
            entry.settled_ms = at_ms
            return entry

    def replay(self, event: dict[str, Any]) -> None:
        """Apply a line of another journal's file."""
        kind = event["event"]
        if kind == "producer":
            self.producer, self.topic = event["producer"], event["topic"]
            self.knows_sent = event["knows_sent"]
            return
        partition, n, at_ms = event["partition"], event["n"], event["at_ms"]
        match kind:
            case "sent":
                self.sent(partition, n, at_ms=at_ms)
            case "acknowledged":
                self.acknowledged(partition, n, event["offset"], at_ms=at_ms)
            case "failed":
                self.failed(partition, n, event["error"], at_ms=at_ms)
            case "lost":
                self.lost(partition, n, at_ms=at_ms)
            case "refused":
                told = (event["error_code"], event["throttle_time_ms"], event["message"])
                self.refused(partition, n, *told, at_ms=at_ms)

    def _write(self, event: dict[str, Any]) -> None:
        if self._file is not None:
            line = json.dumps(event) + "\n"
            with self._lock:
                self._file.write(line)


def whole_lines(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of all complete lines; a kill truncates the last one."""
    for line in lines:
        if line.endswith("\n"):
            yield json.loads(line)


def now_ms() -> int:
    """Return the time for journal events: time.monotonic() in ms."""
    return time.monotonic_ns() // 1_000_000
