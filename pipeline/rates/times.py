"""Minutes, hours and days of UTC, in milliseconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Self

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.errors import BadOption

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
UNITS_MS = {"minute": MINUTE_MS, "hour": HOUR_MS, "day": DAY_MS}


def floored(time_ms: Column | str, unit_ms: int) -> Column:
    """The beginning of the minute, hour or day."""
    time = f.col(time_ms) if isinstance(time_ms, str) else time_ms
    return time - time % unit_ms


@dataclass(frozen=True, slots=True)
class Days:
    """From one day to another, both included; None: no bound."""

    since: str | None = None
    until: str | None = None

    @classmethod
    def parsed(cls, since: str | None, until: str | None) -> Self:
        """Read days as typed. Raises BadOption."""
        for option, day in (("--since", since), ("--until", until)):
            if day is not None and not _is_day(day):
                raise BadOption(f"{option} {day} is no day. Write it as 2026-11-21 (UTC).")
        if since is not None and until is not None and since > until:
            raise BadOption(f"--since {since} is after --until {until}: there is nothing between them.")
        return cls(since, until)

    def of(self, events: DataFrame) -> DataFrame:
        """Return the events of these days. `day` names a folder: others are not opened."""
        if self.since is not None:
            events = events.where(f.col("day") >= self.since)
        if self.until is not None:
            events = events.where(f.col("day") <= self.until)
        return events


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
