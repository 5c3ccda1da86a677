"""A run of a job: all that it writes becomes the results at its end, at once, or nothing of it does.

The only way to write results (ingest has commits of its own).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from pyspark.sql import DataFrame

from pidgate.pipeline.swaps import Swaps
from pidgate.pipeline.tables import Tables

FILES_OF_MANY: Final = 4
"""Of results by client: those may be as many as producer ids, and one file would be written by one task."""

Keep = Callable[[str, DataFrame], DataFrame]
"""Function that computes a frame once, under a name, and returns what is read from now on in its place."""


class Run:
    """The results that a run writes, and the tables that it reads: those of the runs before it."""

    def __init__(self, tables: Tables, folder: str) -> None:
        self.tables = tables
        self.folder = folder
        self.places: list[str] = []

    def write(self, name: str, frame: DataFrame, *, files: int = 1) -> DataFrame:
        """Write a result; return it as it was written."""
        # Not coalesce(), which leaves the whole last step of the computation to as few tasks as there are files.
        return self._written(self.place("results", name), frame.repartition(files))

    def keep(self, name: str, frame: DataFrame) -> DataFrame:
        """Compute a frame once; what is returned can be read until the run ends."""
        return self._written(self.tables.files.full(f"{self.folder}/kept/{name}"), frame)

    def write_text(self, folder: str, name: str, text: str) -> None:
        """Write a file of a folder that is replaced as a whole."""
        self.place(folder)
        self.tables.files.replace(f"{self.folder}/written/{folder}/{name}", text)

    def place(self, *parts: str) -> str:
        """Return where to write what shall take this place."""
        place = "/".join(parts)
        if place not in self.places:
            self.places.append(place)
        return f"{self.root}/{place}"

    @property
    def root(self) -> str:
        """Return the folder that stands for the tables' root."""
        return self.tables.files.full(f"{self.folder}/written")

    def _written(self, path: str, frame: DataFrame) -> DataFrame:
        frame.write.parquet(path)
        return self.tables.spark.read.schema(frame.schema).parquet(path)


@contextmanager
def replacing(tables: Tables) -> Iterator[Run]:
    """Yield a run whose results replace the last ones when the block ends; an error leaves those as they are."""
    swaps = Swaps(tables.files)
    run = Run(tables, swaps.begin())
    try:
        yield run
    except BaseException:
        # What stays because Spark has gone is removed by a later run.
        with suppress(Exception):
            tables.files.remove(run.folder)
        raise
    if run.places:
        swaps.commit(run.folder, run.places)
    else:
        tables.files.remove(run.folder)
