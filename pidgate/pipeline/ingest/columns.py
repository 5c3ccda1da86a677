"""Tables of ingest besides events. Times are milliseconds since 1970."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType


def _columns(text: str) -> StructType:
    """Parse `name type, name type`; Spark's own parser needs a running Spark."""
    columns = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        columns.add(name, kind)
    return columns


class Reason(StrEnum):
    """Reason for a record in dead_letters/."""

    MALFORMED = "malformed"  # no JSON, or a field missing or of the wrong type
    UNKNOWN_TYPE = "unknown_type"  # a type from a newer gateway
    LATE = "late"  # appended long after its creation
    FROM_THE_FUTURE = "from_the_future"  # created, by its own clock, after it was appended


class Cause(StrEnum):
    """Cause of missing numbers."""

    LOST = "lost"  # dropped by the gateway, or buffered when it was killed
    RETENTION = "retention"  # the topic may have deleted them before they were read


class Place(NamedTuple):
    """Position of a record and its append time; schemas.ORIGIN.

    In a landed file: the number of its row. Append time: by the broker's clock, else null.
    """

    kafka_partition: int | None
    kafka_offset: int
    append_time_ms: int | None


Record = tuple[bytes | None, Place]
"""Value and place of a topic record."""


class Good(NamedTuple):
    """An event: an object with the fields of its type (events.definitions), and its writer's version."""

    event: Any
    schema_version: int


class DeadLetter(NamedTuple):
    """A rejected record: a Reason, a sentence, and its identity as far as readable."""

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
        *((name, pa.int64()) for name in ("kafka_offset", "append_time_ms", "wall_time_ms")),
    ]
)
"""Result of a task, one row per record. `reason`: null for an event; `file`: the file that has it."""

DEAD_LETTERS = _columns(
    "reason string, detail string, value binary, type string, gateway_id string, incarnation string, seq long, "
    "wall_time_ms long, kafka_partition integer, kafka_offset long, append_time_ms long"
)
"""Rejected records: Reason, a sentence, the bytes, and the fields that were readable."""

INTERVALS = _columns(
    "gateway_id string, incarnation string, first_seq long, last_seq long, first_ms long, last_ms long, heard long"
)
"""Observed numbers: one row per run without a gap, with its first and last time, and the last batch that had one."""

GAPS = _columns(
    "gateway_id string, incarnation string, first_seq long, last_seq long, missing long, noticed_ms long, cause string"
)
"""Missing numbers. `noticed_ms`: append time of the first event after them, not after it was read."""

LOSSES = _columns(
    "kafka_partition integer, first_offset long, last_offset long, missing long, resumed_ms long, topic_id string"
)
"""Offsets deleted before they were read. `resumed_ms`: append time of the next record read."""

CLOCKS = _columns(
    "gateway_id string, incarnation string, hour_ms long, offset_ms long, applied_ms long, events long"
)
"""Clocks of gateways against the broker's (clocks.py), by hour of append. No hour and offset: not known."""
