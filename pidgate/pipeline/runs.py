"""A run of a job: its results replace the previous ones together at the end, or not at all.

All results are written this way; ingest has its own commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa

from pidgate.pipeline.swaps import Swaps
from pidgate.pipeline.tables import Rows, Tables


class Run:
    """The results written by a run, and the tables of previous runs that it reads."""

    def __init__(self, tables: Tables, folder: str, whole: Run | None = None) -> None:
        self.tables = tables
        self.folder = folder
        self.places: list[str] = []
        self.whole = whole or self
        """The run of all jobs together; what it keeps is readable until the last of them ends."""

    def write(self, name: str, table: pa.Table) -> None:
        """Write a result that this process holds."""
        self.place("results", name)
        path = f"{self.folder}/written/results/{name}/part-0.parquet"
        self.tables.files.write_table(path, table)

    def take_folder(self, name: str, folder: str) -> None:
        """Make a folder of Parquet files a result."""
        self.place("results", name)
        self.tables.files.swap(folder, f"{self.folder}/written/results/{name}", f"{folder}.replaced")

    def query(self, name: str, sql: str = "from found") -> Rows:
        """Return the rows of a query over a result that this run has written, which the query calls `found`."""
        return self.tables.query_at(f"{self.folder}/written/results/{name}", sql)

    def kept(self, name: str) -> str:
        """Return the path of a folder that is removed when the run ends."""
        return f"{self.folder}/kept/{name}"

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


@contextmanager
def replacing(tables: Tables, whole: Run | None = None) -> Iterator[Run]:
    """Yield a run whose results replace the previous ones when the block ends without an error."""
    swaps = Swaps(tables.files)
    run = Run(tables, swaps.begin(), whole)
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
