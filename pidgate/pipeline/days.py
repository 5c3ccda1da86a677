"""The days of history that a job reads: --since and --until."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import reduce
from operator import and_
from typing import Self

import pyarrow.dataset as ds
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

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

    def of(self, events: DataFrame) -> DataFrame:
        """Return the events of these days. `day` is a partition folder, so other days are not opened."""
        if self.since is not None:
            events = events.where(f.col("day") >= self.since)
        if self.until is not None:
            events = events.where(f.col("day") <= self.until)
        return events

    @property
    def condition(self) -> ds.Expression | None:
        """Return the same for Arrow; None for all days."""
        bounds = [ds.field("day") >= self.since] if self.since is not None else []
        bounds += [ds.field("day") <= self.until] if self.until is not None else []
        return reduce(and_, bounds) if bounds else None


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


EVER = Days()
