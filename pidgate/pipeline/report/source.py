"""Result tables as lists of rows, with a limit on their number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from jinja2 import UndefinedError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from pidgate.pipeline.errors import TableUnreadable
from pidgate.pipeline.report.rows import Row
from pidgate.pipeline.tables import Tables

_RESULTS = {
    "rates": ("rates_users", "rates_clients", "rates_by_time", "held_by_hour"),
    "offenders": ("offenders", "detector_accuracy", "detector_confusion"),
    "recommend": ("recommendations", "recommend_candidates", "recommend_totals"),
    "ids": ("ids_blocks", "ids_by_hour", "ids_epochs"),
    "failover": ("failover_kip", "failover_kafka", "failover_summary"),
}
JOB_OF = {name: job for job, names in _RESULTS.items() for name in names}
"""Result tables of the report -> the job that writes each."""

_NOT_WHOLE = ("FAILED_READ_FILE", "UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND")
"""Parts of Spark's errors about a folder that is being replaced."""
_NO_COLUMN = "UNRESOLVED_COLUMN"


@dataclass(frozen=True, slots=True)
class Source:
    """The result tables under one root."""

    tables: Tables
    _found: dict[str, DataFrame | None] = field(default_factory=dict)
    """By name, because reading a table's columns starts a Spark job."""

    def names(self) -> frozenset[str]:
        """Return the names of existing tables."""
        return frozenset(name for name in JOB_OF if self.tables.exists("results", name))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Read and show tables in this block.

        Raises TableUnreadable if one is incomplete, of another version, or was replaced during the block.
        """
        try:
            yield
        except (Py4JError, PySparkException, UndefinedError, KeyError) as error:
            folder, text = self.tables.path("results"), str(error)
            if any(sign in text for sign in _NOT_WHOLE):
                raise TableUnreadable(
                    f"a table under {folder} is incomplete, or was replaced while it was read. If a job is running "
                    "there, wait for it; otherwise rerun the interrupted job. Then rerun the report."
                ) from error
            if isinstance(error, (UndefinedError, KeyError)) or _NO_COLUMN in text:
                raise TableUnreadable(
                    f"a table under {folder} was written by another version: run the jobs with this --tables again "
                    f"({text.splitlines()[0]})."
                ) from error
            raise

    def frame(self, name: str) -> DataFrame | None:
        """Return a table; None if its job was not run."""
        if name not in self._found:
            self._found[name] = self.tables.result(name)
        return self._found[name]

    def rows(self, name: str, *, at_most: int, where: Column | None = None) -> list[Row] | None:
        """Return rows of a table; None if its job was not run."""
        frame = self.frame(name)
        if frame is None:
            return None
        return collected((frame if where is None else frame.where(where)).limit(at_most))


def collected(frame: DataFrame) -> list[Row]:
    """Return all rows of a small frame."""
    return [row.asDict(recursive=True) for row in frame.collect()]
