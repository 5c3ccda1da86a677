"""Events as Spark tables, one per type, derived from the shared event definitions."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
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
"""Position of an event in the topic, and its append time at the broker."""

PARTITIONS = spark.StructType().add("day", spark.StringType(), False).add("hour", spark.StringType(), False)
"""Partition folders of an events table: `day=2026-11-21/hour=07`, in UTC, of wall_time_ms."""


@cache
def event_schema(event_type: str) -> spark.StructType:
    """Return the JSON fields of an event type without `type`, preceded by `schema_version`.

    Every column is nullable, as Spark reads files that way; required fields are checked at ingest.
    """
    made = EVENT_TYPES[event_type]
    return spark.StructType([spark.StructField("schema_version", spark.LongType()), *_struct(made).fields])


@cache
def table_schema(event_type: str) -> spark.StructType:
    """Return the columns of an events table without its folders."""
    return spark.StructType([*event_schema(event_type).fields, *ORIGIN.fields])


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
