"""The tables of ingest that hold no events. Times are milliseconds since 1970."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

_LONG, _INT, _TEXT = LongType(), IntegerType(), StringType()


def _columns(**types: LongType | IntegerType | StringType | BinaryType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


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


RECORDS = _columns(value=BinaryType(), kafka_partition=_INT, kafka_offset=_LONG, append_time_ms=_LONG)
"""Columns of the topic's records."""

DEAD_LETTERS = _columns(
    reason=_TEXT,
    detail=_TEXT,
    value=BinaryType(),
    type=_TEXT,
    gateway_id=_TEXT,
    incarnation=_TEXT,
    seq=_LONG,
    wall_time_ms=_LONG,
    kafka_partition=_INT,
    kafka_offset=_LONG,
    append_time_ms=_LONG,
)
"""Records that are no event of a table: Reason, a sentence, the bytes, and what could be read of them."""

INTERVALS = _columns(
    gateway_id=_TEXT,
    incarnation=_TEXT,
    first_seq=_LONG,
    last_seq=_LONG,
    first_ms=_LONG,
    last_ms=_LONG,
)
"""Numbers that were seen: a row for each run without a gap, and when its events were appended, first and last."""

GAPS = _columns(
    gateway_id=_TEXT,
    incarnation=_TEXT,
    first_seq=_LONG,
    last_seq=_LONG,
    missing=_LONG,
    noticed_ms=_LONG,
    cause=_TEXT,
)
"""Numbers that never came. `noticed_ms`: when the first event behind them was appended."""

LOSSES = _columns(
    kafka_partition=_INT,
    first_offset=_LONG,
    last_offset=_LONG,
    missing=_LONG,
    resumed_ms=_LONG,
    topic_id=_TEXT,
)
"""Offsets that the topic had removed before they were read. `resumed_ms`: when what was read next was appended."""
