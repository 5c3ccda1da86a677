"""The tables of ingest that hold no events. Times are milliseconds since 1970."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa
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
    UNKNOWN_TYPE = "unknown_type"  # a type that a newer gateway writes
    LATE = "late"  # appended long after it was made
    FROM_THE_FUTURE = "from_the_future"  # made, by its own clock, after it was appended


class Cause(StrEnum):
    """Cause of missing numbers."""

    LOST = "lost"  # dropped by the gateway, or in its buffer when it was killed
    RETENTION = "retention"  # the topic may have removed them before they were read


class Place(NamedTuple):
    """Place of a record, and the time of its append; schemas.ORIGIN."""

    kafka_partition: int
    kafka_offset: int
    append_time_ms: int


Record = tuple[bytes | None, Place]
"""Value of a record of the topic."""


class Good(NamedTuple):
    """An event: an object with the fields of its type (events.definitions), and the version that wrote it."""

    event: Any
    schema_version: int


class DeadLetter(NamedTuple):
    """A record that is no event of a table: a Reason, a sentence, and as much of its identity as can be read."""

    reason: str
    detail: str
    type: str | None = None
    gateway_id: str | None = None
    incarnation: str | None = None
    seq: int | None = None
    wall_time_ms: int | None = None


_TEXT = pa.dictionary(pa.int32(), pa.string())
ARRIVALS = pa.schema(
    [
        *((name, _TEXT) for name in ("type", "reason", "file", "gateway_id", "incarnation")),
        ("seq", pa.int64()),
        ("kafka_partition", pa.int32()),
        *((name, pa.int64()) for name in ("kafka_offset", "append_time_ms")),
    ]
)
"""Report of a task: a row for each of its records. `reason`: null for an event; `file`: the one that has it."""

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
