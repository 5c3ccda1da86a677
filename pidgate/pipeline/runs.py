"""A run of a job: its results replace the previous ones together at the end, or not at all.

All results are written this way; ingest has its own commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from pyspark.sql import DataFrame

from pidgate.pipeline.swaps import Swaps
from pidgate.pipeline.tables import Tables

FILES_OF_MANY: Final = 4
"""Files of results by client: as many rows as producer ids would be too much for one task."""

Keep = Callable[[str, DataFrame], DataFrame]
"""Function that computes a frame once under a name, and returns the frame to use instead."""


class Run:
    """The results written by a run, and the tables of previous runs that it reads."""

    def __init__(self, tables: Tables, folder: str) -> None:
        self.tables = tables
        self.folder = folder
        self.places: list[str] = []

    def write(self, name: str, frame: DataFrame, *, files: int = 1) -> DataFrame:
        """Write a result; return it as written."""
        # Not coalesce(), which would run the last step of the computation in as few tasks.
        return self._written(self.place("results", name), frame.repartition(files))

    def keep(self, name: str, frame: DataFrame) -> DataFrame:
        """Compute a frame once; the returned frame is readable until the run ends."""
        return self._written(self.tables.files.full(f"{self.folder}/kept/{name}"), frame)

    def write_text(self, folder: str, name: str, text: str) -> None:
        """Write a file of a folder that is replaced as a whole."""
        self.place(folder)
        self.tables.files.replace(f"{self.folder}/written/{folder}/{name}", text)

    def place(self, *parts: str) -> str:
        """Return the path to write the replacement of this place."""
        place = "/".join(parts)
        if place not in self.places:
            self.places.append(place)
        return f"{self.root}/{place}"

    @property
    def root(self) -> str:
        """Return the folder that represents the tables' root."""
        return self.tables.files.full(f"{self.folder}/written")

    def _written(self, path: str, frame: DataFrame) -> DataFrame:
        frame.write.parquet(path)
        return self.tables.spark.read.schema(frame.schema).parquet(path)


@contextmanager
def replacing(tables: Tables) -> Iterator[Run]:
    """Yield a run whose results replace the previous ones when the block ends without an error."""
    swaps = Swaps(tables.files)
    run = Run(tables, swaps.begin())
    try:
        yield run
    except BaseException:
        # A later run removes leftovers if Spark has gone.
        with suppress(Exception):
            tables.files.remove(run.folder)
        raise
    if run.places:
        swaps.commit(run.folder, run.places)
    else:
        tables.files.remove(run.folder)
