"""Minutes, hours and days of UTC, in milliseconds since 1970."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
UNITS_MS = {"minute": MINUTE_MS, "hour": HOUR_MS, "day": DAY_MS}


def floored(time_ms: Column | str, unit_ms: int) -> Column:
    """Return the start of the minute, hour or day."""
    time = f.col(time_ms) if isinstance(time_ms, str) else time_ms
    return time - time % unit_ms
