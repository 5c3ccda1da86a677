"""Kernels: the work inside a bucket, in SQL that DuckDB runs over Arrow tables.

A kernel reads Arrow tables and returns Arrow tables; it knows neither files nor addresses. Its sums are whole
numbers and its quantiles follow a total order, so the result does not depend on the order of rows, on buckets,
or on the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Self

import duckdb
import pyarrow as pa

ArrowTables = Mapping[str, pa.Table]
_FOLDER = Path(__file__).parent


@cache
def _duck() -> duckdb.DuckDBPyConnection:
    """Return this process's DuckDB, in memory, without threads of its own."""
    duck = duckdb.connect(config={"threads": 1, "enable_external_access": False})
    # What kernels have freed is soon the other processes' again.
    duck.execute("set allocator_bulk_deallocation_flush_threshold = '1MB'")
    return duck


class Kernel:
    """A connection to DuckDB with temporary tables of its own, on one thread: engines run several side by side."""

    def __init__(self, tables: ArrowTables, variables: Mapping[str, float] | None = None) -> None:
        self._duck = _duck().cursor()
        for name, value in (variables or {}).items():
            self._duck.execute(f"set variable {name} = {value!r}")
        for name, table in tables.items():
            self.add(name, table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._duck.close()

    def add(self, name: str, table: pa.Table) -> None:
        self._duck.register(name, table)

    def run(self, script: str) -> None:
        """Run a file of SQL, named by its path in this package without the suffix."""
        self._duck.execute((_FOLDER / f"{script}.sql").read_text())

    def table(self, name: str) -> pa.Table:
        """Return a table that a script has created."""
        return self._duck.table(name).to_arrow_table()
