"""The tables of ingest that hold no events. Times are milliseconds since 1970."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql.types import StructType


def _columns(text: str) -> StructType:
    """Return the columns of `name type, name type`; Spark's own reader of that needs a running Spark."""
    columns = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        columns.add(name, kind)
    return columns


class Reason(StrEnum):
    """Reason why a record is in dead_letters/ and not among the events."""

    MALFORMED = "malformed"  # no JSON, a field missing or of the wrong type
    OLD_VERSION = "old_version"  # a schema_version that is not read any more
    UNKNOWN_TYPE = "unknown_type"  # a type that a newer gateway writes
    LATE = "late"  # appended long after it was made
    FROM_THE_FUTURE = "from_the_future"  # made, by its own clock, after it was appended


class Cause(StrEnum):
    """Cause of missing numbers."""

    LOST = "lost"  # dropped by the gateway, or in its buffer when it was killed
    RETENTION = "retention"  # the topic may have removed them before they were read


RECORDS = _columns("value binary, kafka_partition integer, kafka_offset long, append_time_ms long")
"""Columns of the topic's records."""

DEAD_LETTERS = _columns(
    "reason string, detail string, value binary, type string, gateway_id string, incarnation string, seq long, "
    "wall_time_ms long, kafka_partition integer, kafka_offset long, append_time_ms long"
)
"""Records that are no event of a table: Reason, a sentence, the bytes, and what could be read of them."""

INTERVALS = _columns(
    "gateway_id string, incarnation string, first_seq long, last_seq long, first_ms long, last_ms long"
)
"""Numbers that were seen: a row for each run without a gap, and when its events were appended, first and last."""

GAPS = _columns(
    "gateway_id string, incarnation string, first_seq long, last_seq long, missing long, noticed_ms long, cause string"
)
"""Numbers that never came. `noticed_ms`: when the first event behind them was appended."""

LOSSES = _columns(
    "kafka_partition integer, first_offset long, last_offset long, missing long, resumed_ms long, topic_id string"
)
"""Offsets that the topic had removed before they were read. `resumed_ms`: when what was read next was appended."""
