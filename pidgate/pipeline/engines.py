"""The engines of a pass: Spark, which is the default everywhere, and this process alone for a first look.

Both deal rows into buckets and parts by the same functions and run the same kernels (passes.py), so their results are
equal. Between the kernels Spark moves envelopes: rows with a table's name and some of its rows as an Arrow stream. This
spares the conversion to and from Spark's rows.
"""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import reduce
from typing import Final

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from pidgate.pipeline.days import Days
from pidgate.pipeline.passes import Pass, Placed, Read, dealt, dealt_by_user, place_by_id, place_by_user
from pidgate.pipeline.runs import Keep, Run
from pidgate.pipeline.tables import Tables

BYTES_OF_BUCKET: Final = 24_000_000
"""Of Parquet: about a million events, for which a kernel needs some 300 MB."""
FEWEST_BUCKETS: Final = 32
"""On a cluster, where Spark's 200 partitions of a shuffle would be too many for a small history."""
ROWS_AT_ONCE: Final = 400_000
"""Rows that a Spark task deals out together."""
_ENVELOPE: Final = pa.schema([("part", pa.int32()), ("name", pa.string()), ("payload", pa.binary())])
_SEALED: Final = from_arrow_schema(_ENVELOPE)

Batches = Iterable[pa.RecordBatch]


Write = Callable[[Run, str], None]
"""Function that writes one result of a pass, as part of a job's run."""


class Engine(StrEnum):
    SPARK = "spark"
    LOCAL = "local"


def results_of(todo: Pass, tables: Tables, days: Days, keep: Keep, buckets: int | None = None) -> Write:
    """Compute a pass by the engine of these tables. `buckets`: None chooses a number by the size of the events."""
    if tables.session is None:
        return _by_process(todo, tables, days, buckets)
    return _by_spark(todo, tables, days, keep, buckets)


def _buckets_of(tables: Tables, fewest: int) -> int:
    size = sum(sum(tables.files.sizes(f"events/{name}").values()) for name in ("decision", "id_usage"))
    return max(fewest, -(-size // BYTES_OF_BUCKET))


# Spark


def _by_spark(todo: Pass, tables: Tables, days: Days, keep: Keep, buckets: int | None) -> Write:
    partitions = int(tables.spark.conf.get("spark.sql.shuffle.partitions") or 8)
    buckets = buckets or _buckets_of(tables, min(partitions, FEWEST_BUCKETS))
    parts = min(partitions, buckets)
    of_ids = _dealt_out(tables, days, todo.by_id, place_by_id, buckets)
    partial = of_ids.repartitionById(buckets, "part").mapInArrow(_of_bucket(todo, parts), _SEALED)
    if todo.by_user:
        partial = partial.unionByName(_dealt_out(tables, days, todo.by_user, place_by_user, parts))
    results = partial.repartitionById(parts, "part").mapInArrow(_of_part(todo), _SEALED)
    kept = keep("results", results)

    def write(run: Run, name: str) -> None:
        schema = todo.results[name]
        rows = kept.where(kept["name"] == name)
        run.write(name, rows.mapInArrow(_opened(schema), from_arrow_schema(schema)))

    return write


def _dealt_out(
    tables: Tables, days: Days, reads: Mapping[str, Read], placed: Placed, number: int
) -> DataFrame:
    """Return the events in envelopes for each place."""
    frames = []
    for event_type, read in reads.items():
        events = days.of(tables.events(event_type))
        events = events if read.where is None else events.where(read.where)
        frames.append(events.select(*read.names).mapInArrow(_dealing(event_type, placed, number), _SEALED))
    return reduce(DataFrame.unionByName, frames)


def _dealing(name: str, placed: Placed, number: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def deal(batches: Batches) -> Iterator[pa.RecordBatch]:
        _spare_collector()
        for table in _gathered(batches):
            for part, rows in dealt(table, placed(table, number), number):
                # Only now: each piece would carry the dictionaries of the whole.
                yield _envelope(part, name, _with_dictionaries(rows))

    return deal


def _spare_collector() -> None:
    """Keep imported modules from the garbage collector, which Spark's workers run in full after each task."""
    if not gc.get_freeze_count():
        gc.freeze()


def _gathered(batches: Batches) -> Iterator[pa.Table]:
    """Yield tables of about ROWS_AT_ONCE rows."""
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_AT_ONCE:
            yield pa.Table.from_batches(gathered)
            gathered, rows = [], 0
    if rows:
        yield pa.Table.from_batches(gathered)


def _with_dictionaries(table: pa.Table) -> pa.Table:
    columns = [
        column.combine_chunks().dictionary_encode() if pa.types.is_string(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, table.column_names)


def _of_bucket(todo: Pass, parts: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        _spare_collector()
        for part, name, rows in dealt_by_user(todo.of_bucket(_unsealed(batches)), parts):
            yield _envelope(part, name, rows)

    return run


def _of_part(todo: Pass) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        _spare_collector()
        for name, rows in todo.of_part(_unsealed(batches)).items():
            yield _envelope(0, name, rows)

    return run


def _opened(schema: pa.Schema) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        _spare_collector()
        for table in _unsealed(batches).values():
            yield from table.cast(schema).to_batches(max_chunksize=10_000)

    return run


def _envelope(part: int, name: str, table: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return pa.record_batch([[part], [name], [sink.getvalue().to_pybytes()]], schema=_ENVELOPE)


def _unsealed(batches: Batches) -> dict[str, pa.Table]:
    """Return the tables in the envelopes, by name."""
    found: dict[str, list[pa.Table]] = defaultdict(list)
    for batch in batches:
        for name, payload in zip(batch["name"].to_pylist(), batch["payload"], strict=True):
            found[name].append(pa.ipc.open_stream(payload.as_buffer()).read_all())
    return {name: _joined(tables) for name, tables in found.items()}


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()


# This process alone


def _by_process(todo: Pass, tables: Tables, days: Days, buckets: int | None) -> Write:
    threads = os.cpu_count() or 2
    buckets = buckets or _buckets_of(tables, threads)
    parts = threads
    dealt_out: list[dict[str, list[pa.Table]]] = [defaultdict(list) for _ in range(buckets)]
    partial: list[dict[str, list[pa.Table]]] = [defaultdict(list) for _ in range(parts)]
    for name, read in todo.by_id.items():
        events = _read(tables, days, name, read)
        for bucket, rows in dealt(events, place_by_id(events, buckets), buckets):
            dealt_out[bucket][name].append(rows)
    for name, read in todo.by_user.items():
        events = _read(tables, days, name, read)
        for part, rows in dealt(events, place_by_user(events, parts), parts):
            partial[part][name].append(rows)
    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(lambda one: todo.of_bucket(_all_joined(one)), dealt_out):
            for part, name, rows in dealt_by_user(found, parts):
                partial[part][name].append(rows)
        dealt_out.clear()
        results = list(pool.map(lambda one: todo.of_part(_all_joined(one)), partial))

    def write(run: Run, name: str) -> None:
        table = pa.concat_tables([found[name] for found in results])
        run.write_table(name, table)

    return write


def _all_joined(found: Mapping[str, list[pa.Table]]) -> dict[str, pa.Table]:
    return {name: _joined(tables) for name, tables in found.items()}


def _read(tables: Tables, days: Days, event_type: str, read: Read) -> pa.Table:
    events = tables.event_files(event_type, days)
    if events is None:
        return read.without_rows(event_type)
    with duckdb.connect() as duck:
        found = duck.from_arrow(events)
        found = found if read.where is None else found.filter(read.where)
        return found.select(*(f'"{name}"' for name in read.names)).to_arrow_table()
