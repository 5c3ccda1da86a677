"""A Spark task: writes its records to staged files and returns the arrivals.

One file per event type and hour, and one per day for dead letters. File names are unique per attempt: if a
task ran twice, only one result is used, with its own files.
"""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pidgate.pipeline import arrow_tables
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest.columns import ARRIVALS, DEAD_LETTERS, DeadLetter, Good, Place, Record
from pidgate.pipeline.ingest.reading import LAST_MS, columns_of, misplaced, read
from pidgate.pipeline.schemas import table_schema

STAGED = "arrivals binary"
"""Result of a task: one row, ARRIVALS as an Arrow stream."""
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000


@dataclass(frozen=True, slots=True)
class Staging:
    """Target folder of the tasks and their limits for late and early events. Sent to the tasks.

    `folder` is an absolute path, since tasks have other working directories.
    """

    folder: str
    late_after_ms: int
    ahead_ms: int

    def of(self, records: Iterable[Record]) -> pa.RecordBatch:
        """Write all records of a task; return STAGED."""
        task = _Task(self)
        # The loop creates no cycles, and collection takes a third of the time.
        gc.disable()
        try:
            for value, place in records:
                task.add(value, place)
            return pa.record_batch({"arrivals": pa.array([task.end()], pa.binary())})
        finally:
            gc.enable()


def arrivals_of(answers: pa.Table) -> pa.Table:
    """Return ARRIVALS of all tasks."""
    told = [pa.ipc.open_stream(row.as_buffer()).read_all() for row in answers["arrivals"]]
    return pa.concat_tables([ARRIVALS.empty_table(), *told]).unify_dictionaries().combine_chunks()


class _Task:
    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._files = Files(staging.folder)
        self._name = f"{uuid.uuid4().hex}.parquet"
        self._events: dict[tuple[str, int], tuple[list[Good], list[Place]]] = {}
        self._dead: dict[int, list[tuple[bytes | None, DeadLetter, Place]]] = {}

    def add(self, value: bytes | None, place: Place) -> None:
        staging, found = self._staging, read(value)
        dead: DeadLetter | None
        if isinstance(found, DeadLetter):
            dead = found
        else:
            dead = misplaced(found, place.append_time_ms, staging.late_after_ms, staging.ahead_ms)
            if dead is None:
                key = found.event.type, found.event.wall_time_ms // _HOUR_MS
                events, places = self._events.get(key) or self._events.setdefault(key, ([], []))
                events.append(found)
                places.append(place)
                return
        # The append time may come from the producer.
        day = min(max(place.append_time_ms, 0), LAST_MS) // _DAY_MS
        self._dead.setdefault(day, []).append((value, dead, place))

    def end(self) -> bytes:
        """Write all files; return ARRIVALS."""
        told = [ARRIVALS.empty_table()]
        for (word, hour), (events, places) in self._events.items():
            at = datetime.fromtimestamp(hour * 3_600, UTC)
            schema = _schema_of(word)
            columns = {**columns_of(events, schema), **_columns(Place, places, schema)}
            table = pa.table([columns[name] for name in schema.names], schema=schema)
            folder = f"events/{word}/day={at:%Y-%m-%d}/hour={at:%H}"
            told.append(self._written(folder, table, type=word, reason=None))
        schema = to_arrow_schema(DEAD_LETTERS)
        for day, rows in self._dead.items():
            values, found, where = zip(*rows, strict=True)
            columns = {**_columns(DeadLetter, found, schema), **_columns(Place, where, schema)}
            columns["value"] = pa.array(values, pa.binary())
            table = pa.table([columns[name] for name in schema.names], schema=schema)
            at = datetime.fromtimestamp(day * 86_400, UTC)
            told.append(self._written(f"dead_letters/day={at:%Y-%m-%d}", table))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, ARRIVALS) as stream:
            stream.write_table(pa.concat_tables(told).unify_dictionaries())
        return bytes(sink.getvalue())

    def _written(self, folder: str, table: pa.Table, **same: str | None) -> pa.Table:
        """Write a file; return ARRIVALS of its rows, with `same` in every row."""
        path = f"{folder}/{self._name}"
        arrow_tables.write(self._files, path, table)
        common = {"file": path, **same}
        columns = {name: pa.repeat(pa.scalar(text, pa.string()), len(table)) for name, text in common.items()}
        columns |= {name: table[name] for name in ARRIVALS.names if name not in common}
        return pa.table([columns[one.name].cast(one.type) for one in ARRIVALS], schema=ARRIVALS)


def _columns(
    kind: type[NamedTuple], rows: Sequence[tuple[Any, ...]], schema: pa.Schema
) -> dict[str, pa.Array]:
    """Return a column for each field of these rows."""
    names = kind._fields
    return {
        name: pa.array(values, schema.field(name).type)
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
    }


@cache
def _schema_of(event_type: str) -> pa.Schema:
    return to_arrow_schema(table_schema(event_type))
