"""One pass over the events for `rates` and `offenders`: kernels by producer id, then kernels by user.

    events --by producer id--> buckets: arrivals, use, partial sums     (arrivals.sql, use.sql, */by_id.sql)
           --by user---------> parts:   merged sums, findings, results  (*/by_user.sql, offenders/*.sql)

The engines (engines.py) move the tables; everything that decides a number is called from here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema

from pidgate.pipeline.arrivals import DECISIONS
from pidgate.pipeline.kernels import ArrowTables, Kernel
from pidgate.pipeline.offenders import findings
from pidgate.pipeline.rates.figures import USERS, rates_users
from pidgate.pipeline.schemas import table_schema

RATES: Final = "rates"
OFFENDERS: Final = "offenders"
JOBS: Final = (RATES, OFFENDERS)

_INTEGER, _TEXT = pa.int64(), pa.string()


def _schema(texts: str, integers: str) -> pa.Schema:
    return pa.schema(
        [*((name, _TEXT) for name in texts.split()), *((name, _INTEGER) for name in integers.split())]
    )


RESULTS: Final[Mapping[str, Mapping[str, pa.Schema]]] = {
    RATES: {
        "rates_by_time": _schema("user unit", "start_ms ids new_ids refusals"),
        "rates_clients": _schema("user client_id", "ids new_ids peak_new_ids_per_hour requests refusals"),
        "held_by_hour": _schema("user", "hour_ms ids_held states_held"),
        "rates_users": USERS,
    },
    OFFENDERS: {"offenders": findings.FINDINGS, "offenders_places": findings.PLACES},
}
"""Result tables of each job."""


@dataclass(frozen=True, slots=True)
class Read:
    """Columns of an event table that a pass reads. `where`: a condition in SQL."""

    columns: str
    where: str | None = None

    @property
    def names(self) -> list[str]:
        return self.columns.split()

    def without_rows(self, event_type: str) -> pa.Table:
        schema = to_arrow_schema(table_schema(event_type))
        return pa.schema([schema.field(name) for name in self.names]).empty_table()


BY_ID: Final[Mapping[str, Mapping[str, Read]]] = {
    RATES: {"refusal_outcome": Read("user outcome waited_ms producer_id")},
    OFFENDERS: {"produce_error": Read("user producer_id wall_time_ms code")},
}
USAGE: Final = Read(
    "user client_id address producer_id requests partitions first_ms last_ms incarnation connection_id"
)
BY_USER: Final[Mapping[str, Mapping[str, Read]]] = {
    RATES: {},
    OFFENDERS: {
        "connection": Read(
            "user client_id address incarnation connection_id wall_time_ms close_reason",
            "phase = 'close' and close_reason in ('client', 'reset')",
        )
    },
}
"""Events that are read by user alone."""
_PARTIAL: Final[Mapping[str, Sequence[str]]] = {
    RATES: (
        "ids",
        "ids_by_life",
        "ids_by_minutes",
        "ids_by_day",
        "clients",
        "came_by_minute",
        "came_by_client",
        "held_changes",
        "waits",
    ),
    OFFENDERS: ("producers", "span"),
}
"""Tables of a bucket that go on to the users. One without a user (span) goes to all parts."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What is to be computed. Picklable: tasks of Spark receive it."""

    jobs: Sequence[str]
    remember_ms: int
    expiry_ms: int

    @property
    def by_id(self) -> Mapping[str, Read]:
        """Return the events to read by producer id."""
        found = {"decision": Read(" ".join(DECISIONS)), "id_usage": USAGE}
        return found | {name: read for job in self.jobs for name, read in BY_ID[job].items()}

    @property
    def by_user(self) -> Mapping[str, Read]:
        return {name: read for job in self.jobs for name, read in BY_USER[job].items()}

    @property
    def results(self) -> Mapping[str, pa.Schema]:
        return {name: schema for job in self.jobs for name, schema in RESULTS[job].items()}

    def of_bucket(self, tables: ArrowTables) -> dict[str, pa.Table]:
        """Return the partial tables of a bucket of producer ids. `tables`: those that have rows there."""
        tables = {name: tables.get(name) or read.without_rows(name) for name, read in self.by_id.items()}
        variables = {"remember_ms": self.remember_ms, "expiry_ms": self.expiry_ms}
        with Kernel(tables, variables) as kernel:
            kernel.run("arrivals")
            kernel.run("use")
            for job in self.jobs:
                kernel.run(f"{job}/by_id")
            return {name: kernel.table(name) for job in self.jobs for name in _PARTIAL[job]}

    def of_part(self, tables: ArrowTables) -> dict[str, pa.Table]:
        """Return the result tables of a part of the users. `tables`: those that have rows there."""
        if not tables.keys() >= {*self.by_user, *(name for job in self.jobs for name in _PARTIAL[job])}:
            tables = self._nothing() | dict(tables)
        found: dict[str, pa.Table] = {}
        if RATES in self.jobs:
            with Kernel({name: tables[name] for name in _PARTIAL[RATES]}, {}) as kernel:
                kernel.run("rates/by_user")
                found = {name: kernel.table(name) for name in RESULTS[RATES] if name != "rates_users"}
                found["rates_users"] = rates_users(kernel.table("users"))
        if OFFENDERS in self.jobs:
            found |= findings.by_user(
                {name: tables[name] for name in (*_PARTIAL[OFFENDERS], *BY_USER[OFFENDERS])}
            )
        return {name: table.cast(self.results[name]) for name, table in found.items()}

    def _nothing(self) -> dict[str, pa.Table]:
        """Return all tables of a part without a row."""

        def empty(reads: Mapping[str, Read]) -> dict[str, pa.Table]:
            return {name: read.without_rows(name) for name, read in reads.items()}

        return self.of_bucket(empty(self.by_id)) | empty(self.by_user)


Places = NDArray[np.int64]
Placed = Callable[[pa.Table, int], Places]
"""Function from a table and the number of places to the place of each row."""


def place_by_id(table: pa.Table, buckets: int) -> Places:
    """Return the bucket of each row. Rows without an id are spread by their number."""
    ids = table["producer_id"].to_numpy()
    if "seq" in table.column_names:
        ids = np.where(ids < 0, table["seq"].to_numpy(), ids)
    found: Places = ids % buckets
    return found


def place_by_user(table: pa.Table, parts: int) -> Places:
    users = table["user"].combine_chunks()
    users = users if pa.types.is_dictionary(users.type) else users.dictionary_encode()
    users = users.combine_chunks() if isinstance(users, pa.ChunkedArray) else users
    of_names = np.array([zlib.crc32(name.encode()) % parts for name in users.dictionary.to_pylist()] or [0])
    found: Places = of_names[users.indices.to_numpy(zero_copy_only=False)]
    return found


def dealt(table: pa.Table, places: Places, number: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield each place that has rows, with these."""
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(number + 1))
    ordered = table.take(pa.array(order))
    for place, (begin, end) in enumerate(pairwise(bounds)):
        if end > begin:
            yield place, ordered.slice(begin, end - begin)


def dealt_by_user(tables: ArrowTables, parts: int) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield (part, name, rows) of the partial tables of a bucket."""
    for name, table in tables.items():
        if "user" in table.column_names:
            for part, rows in dealt(table, place_by_user(table, parts), parts):
                yield part, name, rows
        else:
            for part in range(parts):
                yield part, name, table
