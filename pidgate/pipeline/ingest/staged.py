"""A Spark task: writes its records to staged files and returns the arrivals.

One file per event type, day and bucket, and one per day for dead letters. File names are unique per attempt: if
a task ran twice, only one result is used, with its own files.
"""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, NamedTuple

import pyarrow as pa

from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest.columns import ARRIVALS, DEAD_LETTERS, DeadLetter, Good, Place, Record
from pidgate.pipeline.ingest.reading import LAST_MS, columns_of, cut_use, misplaced, read
from pidgate.pipeline.schemas import bucket_of, folder_of, table_schema
from pidgate.pipeline.tasks import envelope

AT_ONCE = 50_000
"""Records of a task in memory."""
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Staging:
    """Target folder of the tasks and their limits for late and early events. Sent to the tasks.

    `folder` is an absolute path, since tasks have other working directories.
    """

    folder: str
    late_after_ms: int
    ahead_ms: int
    now_ms: int

    def of(self, records: Iterable[Record]) -> Iterator[pa.RecordBatch]:
        """Write all records of a task; yield envelopes of ARRIVALS, and of the number of cut id_usage intervals."""
        reading = iter(records)
        # The loop creates no cycles, and collection takes a third of the time.
        gc.disable()
        try:
            for first in reading:
                task = _Task(self)
                for value, place in chain([first], islice(reading, AT_ONCE - 1)):
                    task.add(value, place)
                yield envelope("arrivals", task.end())
                yield envelope("cut", pa.table({"cut": [task.cut]}))
        finally:
            gc.enable()


class _Task:
    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._files = Files(staging.folder)
        self._name = f"{uuid.uuid4().hex}.parquet"
        self.cut = 0
        self._events: dict[tuple[str, int, int], tuple[list[Good], list[Place]]] = {}
        self._dead: dict[int, list[tuple[bytes | None, DeadLetter, Place]]] = {}

    def add(self, value: bytes | None, place: Place) -> None:
        staging, found = self._staging, read(value)
        dead: DeadLetter | None
        if isinstance(found, DeadLetter):
            dead = found
        else:
            event, limits = found.event, (staging.now_ms, staging.late_after_ms, staging.ahead_ms)
            dead = misplaced(found, place.append_time_ms, *limits)
            if dead is None:
                if event.type == "id_usage":
                    self.cut += cut_use(event)
                bucket = bucket_of(getattr(event, "producer_id", 0))
                key = event.type, event.wall_time_ms // DAY_MS, bucket
                events, places = self._events.get(key) or self._events.setdefault(key, ([], []))
                events.append(found)
                places.append(place)
                return
        # A broker's clock may be anything, too.
        at_ms = staging.now_ms if place.append_time_ms is None else place.append_time_ms
        day = min(max(at_ms, 0), LAST_MS) // DAY_MS
        self._dead.setdefault(day, []).append((value, dead, place))

    def end(self) -> pa.Table:
        """Write all files; return ARRIVALS."""
        told = [ARRIVALS.empty_table()]
        for (word, day, bucket), (events, places) in self._events.items():
            schema = table_schema(word)
            columns = {**columns_of(events, schema), **_columns(Place, places, schema)}
            table = pa.table([columns[name] for name in schema.names], schema=schema)
            told.append(self._written(folder_of(word, day, bucket), table, type=word, reason=None))
        schema = DEAD_LETTERS
        for day, rows in self._dead.items():
            values, found, where = zip(*rows, strict=True)
            columns = {**_columns(DeadLetter, found, schema), **_columns(Place, where, schema)}
            columns["value"] = pa.array(values, pa.binary())
            table = pa.table([columns[name] for name in schema.names], schema=schema)
            at = datetime.fromtimestamp(day * 86_400, UTC)
            told.append(self._written(f"dead_letters/day={at:%Y-%m-%d}", table))
        return pa.concat_tables(told).unify_dictionaries()

    def _written(self, folder: str, table: pa.Table, **same: str | None) -> pa.Table:
        """Write a file; return ARRIVALS of its rows, with `same` in every row."""
        path = f"{folder}/{self._name}"
        self._files.write_table(path, table)
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
