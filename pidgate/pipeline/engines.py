"""The engines of a pass: Spark, which is the default everywhere, and this process alone for a first look.

Both deal rows into buckets and parts by the same functions and run the same kernels (passes.py), so their results are
equal. Spark's tasks read events and write results by pyarrow, as those of ingest do.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from pidgate.pipeline.days import Days
from pidgate.pipeline.dealing import Placed, dealt, dealt_to_parts, place_by_id, place_by_user
from pidgate.pipeline.files import Files, in_shares
from pidgate.pipeline.kernels import ArrowTables
from pidgate.pipeline.passes import Pass, Read, Reads
from pidgate.pipeline.runs import Run
from pidgate.pipeline.schemas import table_schema
from pidgate.pipeline.tables import Tables
from pidgate.pipeline.tasks import SEALED, Batches, envelope, in_tasks, joined, spare_upkeep, unsealed

BYTES_OF_BUCKET: Final = 24_000_000
"""Of Parquet: about a million events, for which a kernel needs some 300 MB."""
BYTES_OF_TASK: Final = 12_000_000
"""Of Parquet that one task deals out."""
FEWEST_BUCKETS: Final = 32
"""On a cluster, where Spark's 200 partitions of a shuffle would be too many for a small history."""
MOST_PARTS: Final = 128
"""Unless Spark has more partitions."""
Done = Callable[[pa.Table], pa.Table]


# Events


@dataclass(frozen=True, slots=True)
class Share:
    """Files of one kind of event, to be dealt out together."""

    name: str
    read: Read
    paths: Sequence[str]

    def dealt(self, files: Files, placed: Placed, number: int) -> Iterator[tuple[int, str, pa.Table]]:
        """Yield (place, name, rows)."""
        events = files.dataset(self.paths, table_schema(self.name))
        table = events.to_table(self.read.names, filter=self.read.where)
        for place, rows in dealt(table, placed(table, number), number):
            yield place, self.name, rows


def shares_of(tables: Tables, reads: Reads, days: Days) -> list[Share]:
    """Return all events to read, in shares of about BYTES_OF_TASK. Folders of other days are not opened."""
    return [
        Share(name, read, paths)
        for name, read in reads.items()
        for paths in in_shares(tables.event_sizes(name, days), BYTES_OF_TASK)
    ]


def _buckets_of(tables: Tables, fewest: int) -> int:
    size = sum(sum(tables.event_sizes(name).values()) for name in ("decision", "id_usage"))
    return max(fewest, -(-size // BYTES_OF_BUCKET))


# Spark


class SparkResults:
    """Results that Spark's tasks have written to the run's folder, in a file for each part."""

    def __init__(self, todo: Pass, run: Run, days: Days, buckets: int | None) -> None:
        self._todo, self._tables = todo, run.tables
        partitions = int(run.tables.spark.conf.get("spark.sql.shuffle.partitions") or 8)
        buckets = buckets or _buckets_of(run.tables, min(partitions, FEWEST_BUCKETS))
        # More parts for more events, so that a part stays small; each bucket has an envelope for each.
        parts = min(buckets, max(partitions, MOST_PARTS))
        self._folder = run.whole.kept("-".join(todo.jobs))
        of_ids = self._dealt_out(days, todo.by_id, place_by_id, buckets)
        parted = of_ids.repartitionById(buckets, "part").mapInArrow(partial(_of_bucket, todo, parts), SEALED)
        if todo.by_user:
            parted = parted.unionByName(self._dealt_out(days, todo.by_user, place_by_user, parts))
        write = partial(_write_part, todo, todo.nothing(), run.tables.files.full(""), self._folder)
        parted.repartitionById(parts, "part").mapInArrow(write, SEALED).toArrow()

    def _dealt_out(self, days: Days, reads: Reads, placed: Placed, number: int) -> DataFrame:
        """Return the events in envelopes for each place."""
        root = self._tables.files.full("")

        def deal(share: Share) -> Iterator[pa.RecordBatch]:
            for part, name, rows in share.dealt(Files(root), placed, number):
                # Only now: each piece would carry the dictionaries of the whole.
                yield envelope(name, _with_dictionaries(rows), part)

        return in_tasks(self._tables.spark, shares_of(self._tables, reads, days), deal)

    def write(self, run: Run, name: str) -> None:
        """Make one result a part of a job's run."""
        run.take_folder(name, f"{self._folder}/{name}")

    def each(self, name: str, do: Done) -> pa.Table:
        """Apply a function to each part of a result; return its tables as one, which must be small."""
        root, schema = self._tables.files.full(""), self._todo.results[name]

        def done(path: str) -> Iterator[pa.RecordBatch]:
            yield envelope(name, do(Files(root).read_table([path], schema)))

        paths = list(self._tables.files.data_files(f"{self._folder}/{name}"))
        return unsealed(in_tasks(self._tables.spark, paths, done).toArrow().to_batches())[name]


def _with_dictionaries(table: pa.Table) -> pa.Table:
    columns = [
        column.combine_chunks().dictionary_encode() if pa.types.is_string(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, table.column_names)


def _of_bucket(todo: Pass, parts: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    spare_upkeep()
    for part, name, rows in dealt_to_parts(todo.of_bucket(unsealed(batches)), parts):
        yield envelope(name, rows, part)


def _write_part(
    todo: Pass, nothing: ArrowTables, root: str, folder: str, batches: Batches
) -> Iterator[pa.RecordBatch]:
    spare_upkeep()
    task = TaskContext.get()
    assert task is not None
    # A task that is tried again writes the same files.
    for name, rows in todo.of_part({**nothing, **unsealed(batches)}).items():
        Files(root).write_table(f"{folder}/{name}/part-{task.partitionId():05}.parquet", rows)
    yield from ()


# This process alone


class LocalResults:
    """Results in memory, as a dictionary for each part."""

    def __init__(self, todo: Pass, run: Run, days: Days, buckets: int | None) -> None:
        parts = os.cpu_count() or 2
        buckets = buckets or _buckets_of(run.tables, parts)
        of_ids = _dealt_here(run.tables, shares_of(run.tables, todo.by_id, days), place_by_id, buckets)
        parted = _dealt_here(run.tables, shares_of(run.tables, todo.by_user, days), place_by_user, parts)
        with ThreadPoolExecutor(parts) as pool:
            for found in pool.map(lambda one: todo.of_bucket(joined(one)), of_ids):
                for part, name, rows in dealt_to_parts(found, parts):
                    parted[part][name].append(rows)
            of_ids.clear()
            nothing = todo.nothing()
            self._parts: list[ArrowTables] = list(
                pool.map(lambda one: todo.of_part(nothing | joined(one)), parted)
            )

    def write(self, run: Run, name: str) -> None:
        run.write(name, pa.concat_tables([part[name] for part in self._parts]))

    def each(self, name: str, do: Done) -> pa.Table:
        return pa.concat_tables([do(part[name]) for part in self._parts])


def _dealt_here(
    tables: Tables, shares: Iterable[Share], placed: Placed, number: int
) -> list[dict[str, list[pa.Table]]]:
    """Return the events of each place."""
    found: list[dict[str, list[pa.Table]]] = [defaultdict(list) for _ in range(number)]
    for share in shares:
        for place, name, rows in share.dealt(tables.files, placed, number):
            found[place][name].append(rows)
    return found


Results = SparkResults | LocalResults
"""The results of a pass, readable until the run of all jobs ends."""


def results_of(todo: Pass, run: Run, days: Days, buckets: int | None = None) -> Results:
    """Compute a pass by the engine of the run's tables. `buckets`: None chooses a number by the size of the events."""
    engine = LocalResults if run.tables.session is None else SparkResults
    return engine(todo, run, days, buckets)
