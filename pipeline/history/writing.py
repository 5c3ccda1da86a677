"""A day's tables as files: one for each type and hour, named for the task alone, so that a task that runs twice (a
cluster does that) leaves the same files.

Written by the task itself: one simulation gives nine tables, which no single DataFrame holds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pidgate.pipeline.history.events_of_day import DayTables
from pidgate.pipeline.history.world import HOUR_MS


def write(made: DayTables, root: str, shard: int, day: int) -> dict[str, int]:
    """Write a day's tables; returns the rows by type. `root`: a folder, or a URI of pyarrow (hdfs://, s3://, gs://)."""
    filesystem, folder = file_system(root)
    name = f"history-{day:05d}-{shard:03d}.parquet"
    for kind, table in made.tables.items():
        hours = np.asarray(table["wall_time_ms"]) // HOUR_MS
        edges = np.flatnonzero(np.diff(hours, prepend=hours[:1] - 1, append=hours[-1:] + 1))
        for begin, end in pairwise(edges):
            at = datetime.fromtimestamp(int(hours[begin]) * 3_600, UTC)
            place = f"{folder}/events/{kind}/day={at:%Y-%m-%d}/hour={at:%H}"
            _put(filesystem, table.slice(begin, end - begin), place, name)
    _put(filesystem, made.ids, f"{folder}/labels_ids", name)
    return {kind: table.num_rows for kind, table in made.tables.items()}


def file_system(root: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of `root`, and its path there."""
    if "://" in root or root.startswith("file:"):
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(root)
        return found
    return fs.LocalFileSystem(), root.rstrip("/")


def _put(filesystem: fs.FileSystem, table: pa.Table, folder: str, name: str) -> None:
    filesystem.create_dir(folder, recursive=True)
    # What readers list must be whole: they skip names that begin with a dot.
    partial = f"{folder}/.{name}"
    # Numbers in a row gain nothing from a dictionary, and pay for it.
    texts = [field.name for field in table.schema if not pa.types.is_integer(field.type)]
    pq.write_table(
        table, partial, filesystem=filesystem, compression="snappy", use_dictionary=texts, store_schema=False
    )
    filesystem.move(partial, f"{folder}/{name}")
