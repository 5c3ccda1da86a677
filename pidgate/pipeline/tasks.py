"""Tasks of Spark that yield Arrow tables.

They move in envelopes: rows with a table's name and some of its rows as an Arrow stream. This spares the conversion
to and from Spark's rows.
"""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, TypeVar
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pidgate.pipeline.schemas import schema_of

Batches = Iterable[pa.RecordBatch]
Work = TypeVar("Work")

_ENVELOPE: Final = schema_of("int32: part; string: name; binary: payload")
SEALED: Final = "part int, name string, payload binary"
"""The same for Spark."""


def in_tasks(
    spark: SparkSession, works: Sequence[Work], do: Callable[[Work], Iterator[pa.RecordBatch]]
) -> DataFrame:
    """Return the envelopes that a function yields for each of these, in a task for each."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        spare_upkeep()
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from do(works[number])

    return spark.range(0, len(works), 1, max(1, len(works))).mapInArrow(run, SEALED)


def spare_upkeep() -> None:
    """Spare Spark's workers what they repeat at each task: garbage collection among imported modules, reads of zips.

    They read the lists of all zips on the path anew, 0.1 s each time; Python opens one again if an import needs it.
    """
    _freeze()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


@cache
def _freeze() -> None:
    gc.freeze()


def envelope(name: str, table: pa.Table, part: int = 0) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return pa.record_batch([[part], [name], [sink.getvalue().to_pybytes()]], schema=_ENVELOPE)


def unsealed(batches: Batches) -> dict[str, pa.Table]:
    """Return the tables in the envelopes, by name."""
    found: dict[str, list[pa.Table]] = defaultdict(list)
    for batch in batches:
        for name, payload in zip(batch["name"].to_pylist(), batch["payload"], strict=True):
            found[name].append(pa.ipc.open_stream(payload.as_buffer()).read_all())
    return joined(found)


def joined(found: Mapping[str, list[pa.Table]]) -> dict[str, pa.Table]:
    return {
        name: pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
        for name, tables in found.items()
    }
