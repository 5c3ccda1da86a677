"""Records that Spark's JSON functions did not take at once, read by the gateways' own reader.

Few: other versions, events from elsewhere, texts with characters outside the basic plane, and what is no event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pidgate.events.reading import (
    EventUnreadable,
    UnknownEventType,
    UnsupportedSchemaVersion,
    fields_of,
    from_json,
)
from pidgate.events.writing import to_json
from pidgate.pipeline.ingest.columns import RECORDS, Reason

ANSWERS = StructType(
    [
        *RECORDS.fields,
        *(StructField(name, StringType()) for name in ("text", "type", "reason", "detail")),
        *(StructField(name, StringType()) for name in ("gateway_id", "incarnation")),
        *(StructField(name, LongType()) for name in ("seq", "wall_time_ms", "schema_version")),
    ]
)
"""A record and, with `text`, the event in it as this version writes it; or why it is none."""

Answer = dict[str, Any]
_NO_ANSWER: Answer = dict.fromkeys(set(ANSWERS.names) - set(RECORDS.names))
_REASONS: dict[type[EventUnreadable], Reason] = {
    UnknownEventType: Reason.UNKNOWN_TYPE,
    UnsupportedSchemaVersion: Reason.OLD_VERSION,
}
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


def ask_gateways_reader(records: DataFrame) -> DataFrame:
    """Read all these records by the gateways' own reader."""
    return records.select(*RECORDS.names).mapInArrow(_answers, ANSWERS)


def _answers(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    schema = to_arrow_schema(ANSWERS)
    for batch in batches:
        rows = [record | answer_to(record["value"]) for record in batch.to_pylist()]
        yield pyarrow.RecordBatch.from_pylist(rows, schema=schema)


def answer_to(value: bytes | None) -> Answer:
    """Read one record as gateways do. Its bytes come from outside: never raises."""
    if value is None:
        return _NO_ANSWER | {"reason": Reason.MALFORMED, "detail": "a record without a value"}
    try:
        given = fields_of(value)
    except EventUnreadable as problem:
        return _NO_ANSWER | _refused(problem)
    known = _NO_ANSWER | _identity(given)
    try:
        event = from_json(value)
    except EventUnreadable as problem:
        return known | _refused(problem)
    return known | {"text": to_json(event).decode(), "schema_version": json.loads(value)["schema_version"]}


def _refused(problem: EventUnreadable) -> Answer:
    return {"reason": _REASONS.get(type(problem), Reason.MALFORMED).value, "detail": str(problem)}


def _identity(given: dict[str, Any]) -> Answer:
    """Return the identity, as far as it is readable: the event arrived, even if it cannot be read."""
    found: Answer = {}
    for name in ("type", "gateway_id", "incarnation"):
        if type(given.get(name)) is str:
            found[name] = given[name]
    for name in ("seq", "wall_time_ms"):
        if type(given.get(name)) is int and _LOWEST <= given[name] <= _HIGHEST:
            found[name] = given[name]
    return found
