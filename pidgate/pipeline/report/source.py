"""Result tables as rows of queries, and what is said about a table that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
from jinja2 import UndefinedError
from pyarrow import ArrowInvalid

from pidgate.pipeline.errors import TableUnreadable
from pidgate.pipeline.tables import Rows, Tables

_RESULTS = {
    "rates": ("rates_users", "rates_clients", "rates_by_time", "held_by_hour"),
    "offenders": ("offenders", "detector_accuracy", "detector_confusion"),
    "recommend": ("recommendations", "recommend_candidates", "recommend_totals"),
    "ids": ("ids_blocks", "ids_by_hour", "ids_epochs"),
    "failover": ("failover_kip", "failover_kafka", "failover_summary"),
}
JOB_OF = {name: job for job, names in _RESULTS.items() for name in names}
"""Result tables of the report -> the job that writes each."""


@dataclass(frozen=True, slots=True)
class Source:
    """The result tables under one root."""

    tables: Tables

    def names(self) -> frozenset[str]:
        """Return the names of existing tables."""
        return frozenset(name for name in JOB_OF if self.tables.exists("results", name))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Read and show tables in this block.

        Raises TableUnreadable if one is incomplete, of another version, or was replaced during the block.
        """
        folder = self.tables.path("results")
        try:
            yield
        except (UndefinedError, KeyError, duckdb.BinderException) as error:
            raise TableUnreadable(
                f"a table under {folder} was written by another version: run the jobs with this --tables again "
                f"({str(error).splitlines()[0]})."
            ) from error
        except (OSError, ArrowInvalid, duckdb.Error) as error:
            raise TableUnreadable(
                f"a table under {folder} is incomplete, or was replaced while it was read. If a job is running "
                "there, wait for it; otherwise rerun the interrupted job. Then rerun the report."
            ) from error

    def rows(self, name: str, sql: str = "from found", **values: Any) -> Rows | None:
        """Return the rows of a query over a table, which it calls `found`; None if its job was not run."""
        return self.tables.query(name, sql, **values) if self.tables.exists("results", name) else None
