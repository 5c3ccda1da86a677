"""Events that others copied from the topic to files: Connect sinks, audit copies.

For clusters that librdkafka cannot log in to. A file is JSON lines (.json, .jsonl, .ndjson, also .gz) with an
event each, or Parquet, with the fields of events or with a column `value`. It is complete when it appears, and is
read once, whole. Files of other copies may overlap: numbers identify duplicates.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import pyarrow.parquet as pq

from pidgate.pipeline.errors import BadOption, TableUnreadable
from pidgate.pipeline.files import Files, in_shares
from pidgate.pipeline.ingest.columns import Place, Record
from pidgate.pipeline.ingest.commits import Position
from pidgate.pipeline.ingest.topic import Offsets, Span

_LINES: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
_BYTES_PER_RECORD: Final = 200
"""Of compressed files; it only bounds a batch."""
_AT_ONCE: Final = 5_000
_FILES_AT_ONCE: Final = 64
_HIDDEN: Final = re.compile(r"(^|/)[._]")


class Landed:
    """All files below a folder; hidden ones (`.`, `_`) are ignored. A partition is a file, its only offset 0."""

    def __init__(self, folder: str) -> None:
        self.name = folder
        self._sizes: Mapping[str, int] = {}

    def describe(self) -> tuple[str, Offsets]:
        """Return the identity of the folder, and its files. Raises BadOption."""
        files = Files(self.name)
        sizes = files.sizes("")
        self._sizes = {path: sizes[path] for path in sizes if not _HIDDEN.search(path)}
        unknown = [path for path in self._sizes if not path.endswith((*_LINES, ".parquet"))]
        if unknown or not self._sizes:
            what = f"has {unknown[0]}, which is in neither" if unknown else "has no file in these formats"
            raise BadOption(f"--landed {self.name} {what}: {', '.join(_LINES)}, .parquet.")
        return f"landed in {files.full('')}", Offsets(
            dict.fromkeys(self._sizes, 0), dict.fromkeys(self._sizes, 1)
        )

    def loss(self, position: Position, topic_id: str, offsets: Offsets) -> None:
        """Files may be removed once they are read."""

    def share(self, waiting: Mapping[str, range], most: int) -> dict[str, range]:
        """Return the first files with about `most` records, at least one."""
        sizes = {path: self._sizes[path] for path in sorted(waiting)[:_FILES_AT_ONCE]}
        first = next(iter(in_shares(sizes, most * _BYTES_PER_RECORD)), [])
        return {path: waiting[path] for path in first}

    def tasks(self, wanted: Mapping[str, range]) -> list[list[Span]]:
        return [[Span(*one)] for one in wanted.items()]

    def reader(self, *, stop_at_loss: bool) -> Callable[[Sequence[Span]], Iterator[Record]]:
        """Return the reader of a task's files."""
        folder = self.name

        def records(spans: Sequence[Span]) -> Iterator[Record]:
            files = Files(folder)
            for span in spans:
                yield from _rows(files, span.partition)

        return records


def _rows(files: Files, path: str) -> Iterator[Record]:
    """Yield the records of a file. Raises TableUnreadable."""
    try:
        if path.endswith(".parquet"):
            yield from _of_parquet(files, path)
            return
        with io.BufferedReader(files.input(path, unpacked=True)) as lines:
            for number, line in enumerate(lines):
                if value := line.strip():
                    yield value, Place(None, number, None)
    # pyarrow's and gzip's errors are both.
    except (OSError, ValueError, EOFError) as error:
        raise TableUnreadable(
            f"{files.full(path)} cannot be read: {error}. The batch was not ingested."
        ) from error


def _of_parquet(files: Files, path: str) -> Iterator[Record]:
    with files.input(path) as stream:
        batches = pq.ParquetFile(stream).iter_batches(_AT_ONCE)
        for number, row in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches)):
            yield _of_row(row, number)


def _of_row(row: dict[str, object], number: int) -> Record:
    """Return a record; its place where the columns `partition`, `offset` and `timestamp` tell it."""
    if "value" not in row:
        return json.dumps(row).encode(), Place(None, number, None)
    value = row["value"]
    by_broker = row.get("timestamp_type") in (1, "LogAppendTime")
    at = [row.get("partition"), row.get("offset", number), row.get("timestamp") if by_broker else None]
    # Any other type than a number is unknown.
    partition, offset, timestamp = (one if isinstance(one, int) else None for one in at)
    return value.encode() if isinstance(value, str) else value, Place(  # type: ignore[return-value]
        partition, number if offset is None else offset, timestamp
    )
