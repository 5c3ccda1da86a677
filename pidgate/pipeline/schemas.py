"""Events as Spark tables, one per type, derived from the shared event definitions."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pyspark.sql import types as spark

from pidgate.events.definitions import EVENT_TYPES

_SIMPLE: dict[object, spark.DataType] = {
    int: spark.LongType(),
    str: spark.StringType(),
    bool: spark.BooleanType(),
    float: spark.DoubleType(),
}

ORIGIN = (
    spark.StructType()
    .add("kafka_partition", spark.IntegerType())
    .add("kafka_offset", spark.LongType())
    .add("append_time_ms", spark.LongType())
)
"""Position of an event in the topic, and its append time by the broker's clock.

Null where it is unknown: append_time_ms on a topic with message.timestamp.type=CreateTime, all in landed files.
"""

PARTITIONS = spark.StructType().add("day", spark.StringType(), False).add("bucket", spark.StringType(), False)
"""Partition folders of an events table: `day=2026-11-21/bucket=3`, the UTC day of wall_time_ms, and `bucket_of`."""
BUCKETS = 8


def bucket_of(producer_id: int) -> int:
    """Return the bucket of an event with a producer id, negative ones included; other types have only bucket 0."""
    return producer_id & (BUCKETS - 1)


def folder_of(event_type: str, day: int, bucket: int) -> str:
    """Return the folder of events, by days since 1970."""
    return f"events/{event_type}/day={date(1970, 1, 1) + timedelta(days=day)}/bucket={bucket}"


def is_event(name: str) -> bool:
    """Return whether this is the name of an event type, rather than of the labels of ids."""
    return name in EVENT_TYPES


@cache
def event_schema(event_type: str) -> spark.StructType:
    """Return the JSON fields of an event type without `type`, preceded by `schema_version`.

    Every column is nullable, as Spark reads files that way; required fields are checked at ingest.
    """
    made = EVENT_TYPES[event_type]
    return spark.StructType([spark.StructField("schema_version", spark.LongType()), *_struct(made).fields])


LABELS_OF_IDS = "labels_ids"
_LABELS_OF_IDS = (
    spark.StructType()
    .add("user", spark.StringType())
    .add("producer_id", spark.LongType())
    .add("healthy", spark.BooleanType())
    .add("pattern", spark.StringType())
)
"""Ground truth for each generated id."""


@cache
def table_schema(name: str) -> spark.StructType:
    """Return the columns of an events table without its folders, or of the labels of ids."""
    if name == LABELS_OF_IDS:
        return _LABELS_OF_IDS
    return spark.StructType([*event_schema(name).fields, *ORIGIN.fields])


def _struct(made: Any) -> spark.StructType:
    hints = get_type_hints(made)
    return spark.StructType([spark.StructField(field.name, _of(hints[field.name])) for field in fields(made)])


def _of(hint: Any) -> spark.DataType:
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return spark.StringType()
    if get_origin(hint) is list:
        return spark.ArrayType(_of(inner[0]))
    if NoneType in inner:
        return _of(next(one for one in inner if one is not NoneType))
    if is_dataclass(hint):
        return _struct(hint)
    raise TypeError(f"{hint} has no place in a table")
