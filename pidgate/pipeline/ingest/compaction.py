"""Merges the small files of each folder (a day's bucket; dead letters: a day), one Spark task per merged file.

The new file is staged, its rows are counted, and a commit replaces the old ones. A reader that lists the folder
sees the old files, briefly fewer, then the new one: never an event twice. A reader that listed it before may fail
to open a removed file and must start again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pidgate.pipeline.errors import TableUnreadable
from pidgate.pipeline.files import Files, in_shares, is_data
from pidgate.pipeline.ingest.commits import CommitLog
from pidgate.pipeline.tables import Tables
from pidgate.pipeline.tasks import envelope, in_tasks, unsealed

SMALL_BYTES: Final = 8 << 20
"""A merged file is below twice this size; half a million events or more, which fit into a task's memory."""
AT_LEAST: Final = 8
"""A late event alone does not cause a rewrite."""


def small_files(sizes: Mapping[str, int], at_least: int = AT_LEAST) -> list[list[str]]:
    """Return the groups of files to merge, each of one folder, of at least this many files. Pure."""
    small = sorted(path for path, size in sizes.items() if size < SMALL_BYTES and is_data(path))
    folders = groupby(small, key=lambda path: path.rpartition("/")[0])
    groups = (in_shares({path: sizes[path] for path in paths}, SMALL_BYTES) for _, paths in folders)
    return [group for group in chain.from_iterable(groups) if len(group) >= at_least]


def compact(tables: Tables, log: CommitLog, at_least: int = AT_LEAST) -> int:
    """Merge small files; return how many. Raises TableUnreadable, OtherWriter."""
    files = tables.files
    groups = small_files(files.sizes("events") | files.sizes("dead_letters"), at_least)
    if not groups:
        return 0
    staging = log.staging()
    root = files.full("")

    def merge(paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
        merged = {"path": [_merged(Files(root), paths, staging)], "replaces": [paths]}
        yield envelope("merged", pa.table(merged))

    answers = unsealed(in_tasks(tables.spark, groups, merge).toArrow().to_batches())["merged"]
    staged = {row["path"]: tuple(row["replaces"]) for row in answers.to_pylist()}
    log.commit(log.position, staging, log.moves(staged, staging, "compacted"))
    return sum(map(len, groups))


def _merged(files: Files, paths: Sequence[str], staging: str) -> str:
    """Write the rows of these files to a staged one; return its path. Raises TableUnreadable."""
    found = []
    for path in paths:
        with files.input(path) as stream:
            found.append(pq.ParquetFile(stream).read())
    # Clocks of gateways differ, their numbers do not lie.
    order = [(name, "ascending") for name in ("gateway_id", "incarnation", "seq")]
    table = pa.concat_tables(found).sort_by(order)
    target = f"{staging}/{paths[0].rpartition('/')[0]}/{uuid.uuid4().hex}.parquet"
    files.write_table(target, table)
    with files.input(target) as stream:
        written = pq.ParquetFile(stream).metadata.num_rows
    if written != table.num_rows:
        raise TableUnreadable(
            f"{files.full(paths[0])} has {table.num_rows} rows, but {written} were rewritten"
        )
    return target
