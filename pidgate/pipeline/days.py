"""The days of history that a job reads: --since and --until."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Self

from pidgate.pipeline.errors import BadOption


@dataclass(frozen=True, slots=True)
class Days:
    """A range of days, inclusive; None is unbounded."""

    since: str | None = None
    until: str | None = None

    @classmethod
    def parsed(cls, since: str | None, until: str | None) -> Self:
        """Parse days as typed. Raises BadOption."""
        for option, day in (("--since", since), ("--until", until)):
            if day is not None and not _is_day(day):
                raise BadOption(f"{option} {day} is not a day. Write it as 2026-11-21 (UTC).")
        if since is not None and until is not None and since > until:
            raise BadOption(f"--since {since} is after --until {until}: there is nothing between them.")
        return cls(since, until)

    def __str__(self) -> str:
        """Return the range for a sentence: " from 2026-11-01 to 2026-11-30"; empty for all days."""
        since = f" from {self.since}" if self.since else ""
        return since + (f" to {self.until}" if self.until else "")

    def has(self, path: str) -> bool:
        """Return whether a file lies in the folder of one of these days, or of none."""
        day = path.partition("/day=")[2].partition("/")[0]
        return not day or (self.since or day) <= day <= (self.until or day)

    def during(self, column: str) -> str:
        """Return the range in DuckDB's SQL, for a column with times in ms."""
        bounds = [f"{column} >= epoch_ms(timestamp '{self.since}')"] if self.since is not None else []
        bounds += [f"{column} < epoch_ms(date '{self.until}' + 1)"] if self.until is not None else []
        return " and ".join(bounds) or "true"


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


EVER = Days()
