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
from pidgate.pipeline.dealing import Placed, dealt, dealt_to_parts, place_by_id, place_by_user
from pidgate.pipeline.kernels import ArrowTables
from pidgate.pipeline.passes import Pass, Read, Reads
from pidgate.pipeline.runs import Run
from pidgate.pipeline.schemas import is_event
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
Done = Callable[[pa.Table], pa.Table]


class Engine(StrEnum):
    SPARK = "spark"
    LOCAL = "local"


def _buckets_of(tables: Tables, fewest: int) -> int:
    size = sum(sum(tables.files.sizes(f"events/{name}").values()) for name in ("decision", "id_usage"))
    return max(fewest, -(-size // BYTES_OF_BUCKET))


# Spark


class OfSpark:
    """Results in envelopes that Spark has written to the run's folder."""

    def __init__(self, todo: Pass, run: Run, days: Days, buckets: int | None) -> None:
        self._todo, spark = todo, run.tables.spark
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 8)
        buckets = buckets or _buckets_of(run.tables, min(partitions, FEWEST_BUCKETS))
        parts = min(partitions, buckets)
        of_ids = _dealt_out(run.tables, days, todo.by_id, place_by_id, buckets)
        partial = of_ids.repartitionById(buckets, "part").mapInArrow(_of_bucket(todo, parts), _SEALED)
        if todo.by_user:
            partial = partial.unionByName(_dealt_out(run.tables, days, todo.by_user, place_by_user, parts))
        results = partial.repartitionById(parts, "part").mapInArrow(_of_part(todo), _SEALED)
        kept = run.whole.kept("-".join(todo.jobs))
        results.write.partitionBy("name").parquet(kept)
        self._kept = spark.read.schema(_SEALED).parquet(kept)

    def write(self, run: Run, name: str) -> None:
        """Write one result as part of a job's run."""
        schema = self._todo.results[name]
        rows = self._of(name).mapInArrow(_opened(schema), from_arrow_schema(schema))
        rows.write.parquet(run.place("results", name))

    def each(self, name: str, do: Done) -> pa.Table:
        """Return, together, what a function makes of the parts of a result: it must be small."""
        done = self._of(name).mapInArrow(_done(do), _SEALED)
        return _unsealed(done.toArrow().to_batches())[""]

    def _of(self, name: str) -> DataFrame:
        return self._kept.where(self._kept["name"] == name)


def _dealt_out(tables: Tables, days: Days, reads: Reads, placed: Placed, number: int) -> DataFrame:
    """Return the events in envelopes for each place."""
    frames = []
    for name, read in reads.items():
        events = tables.events(name).where(_condition(name, read, days))
        frames.append(events.select(*read.names).mapInArrow(_dealing(name, placed, number), _SEALED))
    return reduce(DataFrame.unionByName, frames)


def _condition(name: str, read: Read, days: Days) -> str:
    of_days = days.condition if is_event(name) else "true"
    return of_days if read.where is None else f"{of_days} and {read.where}"


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
        for part, name, rows in dealt_to_parts(todo.of_bucket(_unsealed(batches)), parts):
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


def _done(do: Done) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for table in _unsealed(batches).values():
            yield _envelope(0, "", do(table))

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


class OfProcess:
    """The same in memory, a dictionary for each part."""

    def __init__(self, todo: Pass, run: Run, days: Days, buckets: int | None) -> None:
        parts = os.cpu_count() or 2
        buckets = buckets or _buckets_of(run.tables, parts)
        of_ids = _dealt_here(run.tables, days, todo.by_id, place_by_id, buckets)
        partial = _dealt_here(run.tables, days, todo.by_user, place_by_user, parts)
        with ThreadPoolExecutor(parts) as pool:
            for found in pool.map(lambda one: todo.of_bucket(_all_joined(one)), of_ids):
                for part, name, rows in dealt_to_parts(found, parts):
                    partial[part][name].append(rows)
            of_ids.clear()
            self._parts = list(pool.map(lambda one: todo.of_part(_all_joined(one)), partial))

    def write(self, run: Run, name: str) -> None:
        run.write(name, pa.concat_tables([part[name] for part in self._parts]))

    def each(self, name: str, do: Done) -> pa.Table:
        return pa.concat_tables([do(part[name]) for part in self._parts])


Pieces = dict[str, list[pa.Table]]


def _dealt_here(tables: Tables, days: Days, reads: Reads, placed: Placed, number: int) -> list[Pieces]:
    """Return the events of each place."""
    found: list[Pieces] = [defaultdict(list) for _ in range(number)]
    for name, read in reads.items():
        events = tables.event_files(name)
        if events is None:
            continue
        with duckdb.connect() as duck:
            rows = duck.from_arrow(events).filter(_condition(name, read, days))
            table = rows.select(*(f'"{column}"' for column in read.names)).to_arrow_table()
        for place, piece in dealt(table, placed(table, number), number):
            found[place][name].append(piece)
    return found


def _all_joined(found: Mapping[str, list[pa.Table]]) -> ArrowTables:
    return {name: _joined(tables) for name, tables in found.items()}


Results = OfSpark | OfProcess
"""The results of a pass, readable until the run of all jobs ends."""


def results_of(todo: Pass, run: Run, days: Days, buckets: int | None = None) -> Results:
    """Compute a pass by the engine of the run's tables. `buckets`: None chooses a number by the size of the events."""
    engine = OfProcess if run.tables.session is None else OfSpark
    return engine(todo, run, days, buckets)
