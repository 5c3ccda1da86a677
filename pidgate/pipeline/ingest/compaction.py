"""Merges the many small files of an hour into one, sorted by time.

One folder at a time: the new file is staged, its rows are counted, and a commit replaces the old ones. A
reader that lists the folder sees the old files, briefly fewer, then the new one: never an event twice. A
reader that listed it before may fail to open a removed file and must start again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pidgate.pipeline.errors import TableUnreadable
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest.columns import DEAD_LETTERS
from pidgate.pipeline.ingest.commits import CommitLog
from pidgate.pipeline.schemas import table_schema
from pidgate.pipeline.tables import Tables, in_order

CLOSED_AFTER = timedelta(minutes=30)
"""Delay after the hour before its folder is closed.

Later events are still added, and the folder is compacted again.
"""

ROWS_PER_FILE = 2_000_000
"""About 100 MB."""


def closed_folders(files: Files, now_ms: int, at_least: int = 2, days: int | None = None) -> list[str]:
    """Return closed folders (hours; dead letters: days) with `at_least` files, of the latest `days`."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    oldest = "" if days is None else f"day={now - timedelta(days=days):%Y-%m-%d}"
    found = []
    for folder in _folders(files, oldest):
        named = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
        begins = datetime.strptime(f"{named['day']} {named.get('hour', '00')} +0000", "%Y-%m-%d %H %z")
        over = begins + (timedelta(hours=1) if "hour" in named else timedelta(days=1)) + CLOSED_AFTER
        if over <= now and len(list(files.data_files(folder))) >= at_least:
            found.append(folder)
    return found


def _folders(files: Files, oldest: str) -> list[str]:
    def below(folder: str, beginning: str) -> list[str]:
        return [f"{folder}/{name}" for name in files.names(folder) if name.startswith(beginning)]

    days = [
        day
        for table in below("events", "")
        for day in below(table, "day=")
        if day.rpartition("/")[2] >= oldest
    ]
    hours = [hour for day in days for hour in below(day, "hour=")]
    return hours + [day for day in below("dead_letters", "day=") if day.rpartition("/")[2] >= oldest]


def compact(tables: Tables, log: CommitLog, folder: str) -> int:
    """Merge a folder's files; return their number. Raises TableUnreadable."""
    spark, files = tables.spark, tables.files
    before = list(files.data_files(folder))
    rows = spark.read.schema(_schema(folder)).parquet(*(files.full(path) for path in before))
    expected = rows.count()
    staging = log.staging()
    _sorted(rows, 1 + expected // ROWS_PER_FILE).write.parquet(files.full(staging))
    written = spark.read.parquet(files.full(staging)).count()
    if written != expected:
        raise TableUnreadable(f"{files.full(folder)} has {expected} rows, but {written} were rewritten")
    log.commit(
        log.position, moves=log.moves(files.data_files(staging), staging, "compacted", folder), removes=before
    )
    return len(before)


def _schema(folder: str) -> StructType:
    parts = folder.split("/")
    return table_schema(parts[1]) if parts[0] == "events" else DEAD_LETTERS


def _sorted(rows: DataFrame, files: int) -> DataFrame:
    if files == 1:
        return rows.coalesce(1).sortWithinPartitions(*in_order())
    return rows.repartitionByRange(files, *in_order()).sortWithinPartitions(*in_order())
