"""Result tables as lists of dataclasses, with a limit on rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from pidgate.pipeline.errors import TableUnreadable
from pidgate.pipeline.tables import Tables

Row = TypeVar("Row")

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
        """Read tables in this block.

        Raises TableUnreadable if one is incomplete or was replaced during the block.
        """
        try:
            yield
        except (Py4JError, PySparkException) as error:
            if not any(sign in str(error) for sign in _NOT_WHOLE):
                raise
            raise TableUnreadable(
                f"a table under {self.tables.path('results')} is incomplete, or was replaced while it was read. "
                "If a job is running there, wait for it; otherwise rerun the interrupted job. Then "
                "rerun the report."
            ) from error

    def frame(self, name: str, *columns: str) -> DataFrame | None:
        """Return a table with these columns; None if its job was not run. Raises TableUnreadable."""
        if name not in self._found:
            self._found[name] = self.tables.result(name)
        found = self._found[name]
        if found is None:
            return None
        missing = [column for column in columns if column not in found.columns]
        if missing:
            raise TableUnreadable(
                f"{self.tables.path('results', name)} has no column {', '.join(missing)}: another version wrote it. "
                f"Run `pidgate pipeline {JOB_OF[name]}` with this --tables again."
            )
        return found.select(*columns) if columns else found

    def dicts(self, name: str, *, at_most: int, where: Column | None = None) -> list[dict[str, Any]]:
        """Return rows of a table by column name; none if its job was not run."""
        frame = self.frame(name)
        if frame is None:
            return []
        found = frame if where is None else frame.where(where)
        return [row.asDict(recursive=True) for row in found.limit(at_most).collect()]

    def rows(
        self,
        name: str,
        row: type[Row],
        *,
        at_most: int,
        users: DataFrame | None = None,
        where: Column | None = None,
    ) -> list[Row] | None:
        """Return rows of a table; `users` (a frame with the column `user`) limits them to these users."""
        frame = self.frame(name, *columns_of(row))
        if frame is None:
            return None
        if where is not None:
            frame = frame.where(where)
        if users is not None:
            frame = frame.join(users.hint("broadcast"), "user", "left_semi")
        return collected(frame.limit(at_most), row)


def columns_of(row: type[Any]) -> list[str]:
    return [field.name for field in fields(row)]


def collected(frame: DataFrame, row: type[Row]) -> list[Row]:
    """Return all rows of a small frame by column name."""
    wanted = columns_of(row)
    return [row(**{name: found[name] for name in wanted}) for found in frame.collect()]
