"""Tables of ingest besides events. Times are milliseconds since 1970."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa

from pidgate.pipeline.schemas import schema_of


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
        *schema_of("int64: seq; int32: kafka_partition; int64: kafka_offset append_time_ms wall_time_ms"),
    ]
)
"""Result of a task, one row per record. `reason`: null for an event; `file`: the file that has it."""

DEAD_LETTERS = schema_of(
    "string: reason detail; binary: value; string: type gateway_id incarnation; int64: seq wall_time_ms; "
    "int32: kafka_partition; int64: kafka_offset append_time_ms"
)
"""Rejected records: Reason, a sentence, the bytes, and the fields that were readable."""

INTERVALS = schema_of("string: gateway_id incarnation; int64: first_seq last_seq first_ms last_ms heard")
"""Observed numbers: one row per run without a gap, with its first and last time, and the last batch that had one."""

GAPS = schema_of(
    "string: gateway_id incarnation; int64: first_seq last_seq missing noticed_ms; string: cause"
)
"""Missing numbers. `noticed_ms`: append time of the first event after them, not after it was read."""

LOSSES = schema_of(
    "int32: kafka_partition; int64: first_offset last_offset missing resumed_ms; string: topic_id"
)
"""Offsets deleted before they were read. `resumed_ms`: append time of the next record read."""

CLOCKS = schema_of("string: gateway_id incarnation; int64: hour_ms offset_ms applied_ms events")
"""Clocks of gateways against the broker's (clocks.py), by hour of append. No hour and offset: not known."""
