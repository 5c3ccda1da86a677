"""The newest event of a kind: the quotas in force, the brokers."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.tables import Tables


def newest_row(events: DataFrame) -> DataFrame:
    """Return the newest event of all gateways as the only row; no row if there is none."""
    return events.orderBy(f.desc("wall_time_ms"), f.desc("seq")).limit(1)


def newest_event(events: DataFrame) -> dict[str, Any] | None:
    """Return the same as plain values, or None."""
    rows = newest_row(events).collect()
    return rows[0].asDict(recursive=True) if rows else None


def newest_value(tables: Tables, event_type: str, column: str) -> int | None:
    """Return the newest value above 0 in all events of a type, or None."""
    events = tables.event_files(event_type)
    if events is None:
        return None
    found = events.to_table([column, "wall_time_ms"], filter=pc.field(column) > 0)
    newest = found.sort_by([("wall_time_ms", "descending"), (column, "descending")]).slice(0, 1)
    value: int | None = next(iter(newest[column].to_pylist()), None)
    return value
