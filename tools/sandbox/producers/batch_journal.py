"""The journal of producers that use each producer id for one batch: the life of each id as its producer saw it.

Written by the producers' process as JSON lines, read by the demos' checks; knows no sockets.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from tools.sandbox.journal import now_ms, whole_lines


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer: not appended, come back."""

    at_ms: int
    error_code: int
    throttle_time_ms: int
    message: str


@dataclass(slots=True)
class IdLife:
    """One producer id as its producer saw it. Times are time.monotonic() in ms."""

    producer_id: int
    producer: str
    """Client id of the producer that brought it."""
    address: str
    """host:port of the connection that brought it first."""
    began_ms: int
    refusals: list[Refusal] = field(default_factory=list)
    acknowledged_ms: int = -1
    partitions: int = 0
    """Partitions that acknowledged its batch."""
    gave_up_ms: int = -1
    lost_ms: int = -1
    """Time at which it was given up though a try had no answer: in the log or not."""

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
        """Time from its first batch to its end, if it was refused in between; else 0."""
        end_ms = max(self.acknowledged_ms, self.gave_up_ms, self.lost_ms)
        return end_ms - self.began_ms if self.refusals and end_ms >= 0 else 0


class JournalWriter:
    """Journal to which events are appended, each line at once."""

    def __init__(self, file: IO[str], user: str, topic: str) -> None:
        self._file = file
        self.note("journal", user=user, topic=topic)

    def note(self, event: str, **facts: object) -> None:
        """Write an event of a producer id (began, refused, acknowledged, gave_up, lost), or a trouble without one."""
        self._file.write(json.dumps({"event": event, "at_ms": now_ms(), **facts}) + "\n")


@dataclass(slots=True)
class BatchJournal:
    """A journal read back; `replay` may be called again with what was written since."""

    user: str = ""
    topic: str = ""
    lives: dict[int, IdLife] = field(default_factory=dict)
    troubles: dict[str, int] = field(default_factory=dict)
    """Attempts without an answer, by error."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a journal; passes over a last line that was cut off by a kill."""
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
        """Ids that were refused at least once."""
        return [life for life in self.lives.values() if life.refusals]

    @property
    def given_up(self) -> list[IdLife]:
        return [life for life in self.lives.values() if life.gave_up]

    @property
    def waiting(self) -> list[IdLife]:
        """Ids that were refused and not settled when the journal ended."""
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
