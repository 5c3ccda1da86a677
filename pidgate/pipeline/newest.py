"""The newest event of a kind: the quotas in force, the brokers."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def newest_row(events: DataFrame) -> DataFrame:
    """Return the newest event of all gateways as the only row; no row if there is none."""
    return events.orderBy(f.desc("wall_time_ms"), f.desc("seq")).limit(1)


def newest_event(events: DataFrame) -> dict[str, Any] | None:
    """Return the same as plain values, or None."""
    rows = newest_row(events).collect()
    return rows[0].asDict(recursive=True) if rows else None


def newest_value(events: DataFrame, column: str) -> int | None:
    """Return the newest value above 0 in these events, or None."""
    row = events.where(f.col(column) > 0).agg(f.max_by(column, "wall_time_ms")).first()
    return None if row is None else row[0]
