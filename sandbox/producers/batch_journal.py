"""The journal of producers that use each producer id for one batch: what became of each id, by its own word.

Written by the rogue's process as JSON lines, read by whoever judges; knows no sockets.
"""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self


@dataclass(frozen=True, slots=True)
class Refusal:
    """One answer that said: not appended, come back."""

    at_ms: int
    error_code: int
    throttle_time_ms: int
    message: str


@dataclass(slots=True)
class IdLife:
    """One producer id as its producer saw it. Times are time.monotonic() in ms."""

    producer_id: int
    producer: str
    """Which of the journal's producers brought it; its client id, too."""
    address: str
    """host:port from which it was brought first."""
    began_ms: int
    refusals: list[Refusal] = field(default_factory=list)
    acknowledged_ms: int = -1
    partitions: int = 0
    """Partitions that acknowledged its batch."""
    gave_up_ms: int = -1
    lost_ms: int = -1
    """When its connection ended without an answer: in the log or not."""

    @property
    def is_acknowledged(self) -> bool:
        return self.acknowledged_ms >= 0

    @property
    def gave_up(self) -> bool:
        return self.gave_up_ms >= 0

    @property
    def is_settled(self) -> bool:
        return self.is_acknowledged or self.gave_up or self.lost_ms >= 0

    @property
    def waited_ms(self) -> int:
        """From its first batch to its end, when it was refused before; else 0."""
        end_ms = max(self.acknowledged_ms, self.gave_up_ms, self.lost_ms)
        return end_ms - self.began_ms if self.refusals and end_ms >= 0 else 0


class JournalWriter:
    """Appends what happens, each line at once."""

    def __init__(self, file: IO[str], user: str, topic: str) -> None:
        self._file = file
        self._write({"event": "journal", "user": user, "topic": topic})

    def began(self, producer_id: int, producer: str, address: str) -> None:
        self._note("began", producer_id, producer=producer, address=address)

    def refused(self, producer_id: int, error_code: int, throttle_time_ms: int, message: str | None) -> None:
        self._note(
            "refused",
            producer_id,
            error_code=error_code,
            throttle_time_ms=throttle_time_ms,
            message=message or "",
        )

    def acknowledged(self, producer_id: int, partitions: int) -> None:
        self._note("acknowledged", producer_id, partitions=partitions)

    def gave_up(self, producer_id: int) -> None:
        self._note("gave_up", producer_id)

    def lost(self, producer_id: int) -> None:
        self._note("lost", producer_id)

    def trouble(self, error: BaseException) -> None:
        """No producer id yet and no connection either."""
        self._write({"event": "trouble", "error": str(error) or type(error).__name__, "at_ms": _now_ms()})

    def _note(self, event: str, producer_id: int, **facts: object) -> None:
        self._write({"event": event, "producer_id": producer_id, "at_ms": _now_ms(), **facts})

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line) + "\n")


@dataclass(slots=True)
class BatchJournal:
    """A journal read back; `replay` may be called again with what was written since."""

    user: str = ""
    topic: str = ""
    lives: dict[int, IdLife] = field(default_factory=dict)
    troubles: dict[str, int] = field(default_factory=dict)
    """Connections that could not be had, by error."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """A last line that was cut off by a kill is passed over."""
        journal = cls()
        with path.open() as lines:
            journal.replay(whole_lines(lines))
        return journal

    def replay(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            match event["event"]:
                case "journal":
                    self.user, self.topic = event["user"], event["topic"]
                case "trouble":
                    self.troubles[event["error"]] = self.troubles.get(event["error"], 0) + 1
                case "began":
                    life = IdLife(event["producer_id"], event["producer"], event["address"], event["at_ms"])
                    self.lives[life.producer_id] = life
                case kind:
                    _go_on(self.lives[event["producer_id"]], kind, event)

    @property
    def acknowledged(self) -> list[IdLife]:
        return [life for life in self.lives.values() if life.is_acknowledged]

    @property
    def refused(self) -> list[IdLife]:
        """Refused at least once, whatever became of them."""
        return [life for life in self.lives.values() if life.refusals]

    @property
    def given_up(self) -> list[IdLife]:
        return [life for life in self.lives.values() if life.gave_up]

    @property
    def waiting(self) -> list[IdLife]:
        """Refused and not settled (when the journal ended)."""
        return [life for life in self.lives.values() if life.refusals and not life.is_settled]

    @property
    def lost(self) -> list[IdLife]:
        return [life for life in self.lives.values() if life.lost_ms >= 0]


def _go_on(life: IdLife, kind: str, event: dict[str, Any]) -> None:
    at_ms = event["at_ms"]
    match kind:
        case "refused":
            life.refusals.append(
                Refusal(at_ms, event["error_code"], event["throttle_time_ms"], event["message"])
            )
        case "acknowledged":
            life.acknowledged_ms, life.partitions = at_ms, event["partitions"]
        case "gave_up":
            life.gave_up_ms = at_ms
        case "lost":
            life.lost_ms = at_ms
        case _:
            raise ValueError(f"a journal with an event {kind!r}")


def whole_lines(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of all lines that were written to their end."""
    for line in lines:
        if line.endswith("\n"):
            yield json.loads(line)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
