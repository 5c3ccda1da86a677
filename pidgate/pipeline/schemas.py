"""Tables as Arrow schemas; those of events, one per type, are derived from the shared event definitions."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pyarrow as pa

from pidgate.events.definitions import EVENT_TYPES

_SIMPLE: dict[object, pa.DataType] = {
    int: pa.int64(),
    str: pa.string(),
    bool: pa.bool_(),
    float: pa.float64(),
}


def schema_of(text: str) -> pa.Schema:
    """Parse the columns of a table: "string: user topic; int64: first_ms last_ms"; "strings" are lists of them."""
    found = []
    for group in text.split(";"):
        kind, _, names = group.strip().partition(":")
        of_kind = pa.list_(pa.string()) if kind == "strings" else pa.type_for_alias(kind)
        found += [(name, of_kind) for name in names.split()]
    return pa.schema(found)


ORIGIN = schema_of("int32: kafka_partition; int64: kafka_offset append_time_ms")
"""Position of an event in the topic, and its append time by the broker's clock.

Null where it is unknown: append_time_ms on a topic with message.timestamp.type=CreateTime, all in landed files.
"""

PARTITIONS = schema_of("string: day bucket")
"""Partition folders of an events table: `day=2026-11-21/bucket=3`, the UTC day of wall_time_ms, and `bucket_of`."""
BUCKETS = 8


def bucket_of(producer_id: int) -> int:
    """Return the bucket of an event with a producer id, negative ones included; other types have only bucket 0."""
    return producer_id & (BUCKETS - 1)


def folder_of(event_type: str, day: int, bucket: int) -> str:
    """Return the folder of events, by days since 1970."""
    return f"events/{event_type}/day={date(1970, 1, 1) + timedelta(days=day)}/bucket={bucket}"


LABELS_OF_IDS = "labels_ids"
_LABELS_OF_IDS = schema_of("string: user; int64: producer_id; bool: healthy; string: pattern")
"""Ground truth for each generated id."""


@cache
def table_schema(name: str) -> pa.Schema:
    """Return the columns of an events table without its folders, or of the labels of ids.

    An event has its `schema_version`, its JSON fields without `type`, and its ORIGIN. Every column is nullable;
    required fields are checked at ingest.
    """
    if name == LABELS_OF_IDS:
        return _LABELS_OF_IDS
    return pa.schema([("schema_version", pa.int64()), *_struct(EVENT_TYPES[name]), *ORIGIN])


def _struct(made: Any) -> pa.StructType:
    hints = get_type_hints(made)
    return pa.struct([(field.name, _of(hints[field.name])) for field in fields(made)])


def _of(hint: Any) -> pa.DataType:
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return pa.string()
    if get_origin(hint) is list:
        return pa.list_(pa.field("element", _of(inner[0])))
    if NoneType in inner:
        return _of(next(one for one in inner if one is not NoneType))
    if is_dataclass(hint):
        return _struct(hint)
    raise TypeError(f"{hint} has no place in a table")
