"""One pass over the events for some jobs: kernels by producer id, then kernels by user.

    events --by producer id--> buckets: arrivals, use, partial sums     (arrivals.sql, use.sql, */by_id.sql)
           --by user---------> parts:   merged sums, findings, results  (*/by_user.sql, offenders/*.sql)

The engines (engines.py) move the tables; everything that decides a number is called from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pidgate.pipeline.kernels import ArrowTables, Kernel
from pidgate.pipeline.offenders import findings
from pidgate.pipeline.recommend import recommended
from pidgate.pipeline.schemas import LABELS_OF_IDS, schema_of, table_schema

RATES: Final = "rates"
OFFENDERS: Final = "offenders"
RECOMMEND: Final = "recommend"
IDS: Final = "ids"
FAILOVER: Final = "failover"


@dataclass(frozen=True, slots=True)
class Read:
    """Columns of an event table that a pass reads, and the rows."""

    columns: str
    where: pc.Expression | None = None

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(self.columns.split()))

    def without_rows(self, event_type: str) -> pa.Table:
        return table_schema(event_type).empty_table().select(self.names)


Reads = Mapping[str, Read]
_OF_ALL: Final[Reads] = {
    "decision": Read(
        "user client_id address producer_id decision reason wall_time_ms gateway_id incarnation seq connection_id "
        "transactional transactional_id_hash topic"
    ),
    "id_usage": Read("user client_id address producer_id requests partitions first_ms last_ms"),
}
"""Events by producer id that every job reads: those of arrivals.sql and use.sql."""


@dataclass(frozen=True, slots=True)
class Job:
    """The kernels of a job."""

    results: Mapping[str, pa.Schema]
    partial: Sequence[str]
    """Tables of a bucket that go to the parts; a table without a user or a block, to every part."""
    of_part: Callable[[Pass, ArrowTables], dict[str, pa.Table]]
    """Function from the partial tables, and the events by user, to the results."""
    by_id: Reads = field(default_factory=dict)
    """More events by producer id, or more columns."""
    by_user: Reads = field(default_factory=dict)
    """Events that are read by user alone."""


def _run(script: str, *names: str) -> Callable[[Pass, ArrowTables], dict[str, pa.Table]]:
    """Return the function that runs a script over the tables of a part; it creates these."""

    def run(_: Pass, tables: ArrowTables) -> dict[str, pa.Table]:
        with Kernel(tables) as kernel:
            kernel.run(script)
            return {name: kernel.table(name) for name in names}

    return run


def _recommend(todo: Pass, tables: ArrowTables) -> dict[str, pa.Table]:
    assert todo.question is not None
    return recommended.by_user(todo.question, tables)


JOBS: Final[Mapping[str, Job]] = {
    RATES: Job(
        results={
            "rates_by_time": schema_of("string: user unit; int64: start_ms ids new_ids refusals"),
            "rates_clients": schema_of(
                "string: user client_id; int64: ids new_ids peak_new_ids_per_hour requests refusals"
            ),
            "held_by_hour": schema_of("string: user; int64: hour_ms ids_held states_held"),
            "rates_users": schema_of(
                "string: user; int64: first_ms last_ms ids new_ids peak_new_ids_per_minute peak_new_ids_per_hour "
                "peak_new_ids_per_day; double: new_ids_per_hour_p50 new_ids_per_hour_p95 new_ids_per_hour_p99; "
                "int64: life_ms_p50 life_ms_p95 requests; double: requests_per_id partitions_per_id; "
                "int64: refusals refused_ids waited_ms_p50 waited_ms_p95 gave_up ids_held states_held"
            ),
        },
        partial=(
            "ids", "ids_by_life", "ids_by_minutes", "ids_by_day", "clients", "came_by_minute", "came_by_client",
            "held_changes", "waits",
        ),
        of_part=_run("rates/by_user", "rates_by_time", "rates_clients", "held_by_hour", "rates_users"),
        by_id={"refusal_outcome": Read("user outcome waited_ms producer_id")},
    ),
    OFFENDERS: Job(
        results={"offenders": findings.FINDINGS, "offenders_places": findings.PLACES},
        partial=("producers", "span"),
        of_part=lambda _, tables: findings.by_user(tables),
        by_id={
            "id_usage": Read("incarnation connection_id"),
            "produce_error": Read("user producer_id wall_time_ms code"),
        },
        by_user={
            "connection": Read(
                "user client_id address incarnation connection_id wall_time_ms close_reason",
                (pc.field("phase") == "close") & pc.field("close_reason").isin(["client", "reset"]),
            )
        },
    ),
    RECOMMEND: Job(
        results=recommended.RESULTS,
        partial=("history", "seen", "extent"),
        of_part=_recommend,
        by_id={
            "decision": Read("software_name software_version"),
            "id_usage": Read("records wall_time_ms"),
            LABELS_OF_IDS: Read("user producer_id healthy"),
        },
    ),
    IDS: Job(
        results={
            "merged": schema_of("int64: block_start node_id first_ms last_ms ids_seen ids_given ids_unnamed"),
            "ids_epochs": schema_of(
                "string: user; int64: producer_id first_epoch last_epoch bumps; bool: exhausted"
            ),
        },
        partial=("blocks", "ids_epochs"),
        of_part=_run("ids/by_block", "merged", "ids_epochs"),
        by_id={
            "decision": Read("epoch"),
            "id_usage": Read("epoch"),
            "init_producer_id": Read(
                "user answered_producer_id answered_epoch node_id wall_time_ms count",
                (pc.field("error") == 0) & (pc.field("answered_producer_id") >= 0),
            ),
        },
    ),
    FAILOVER: Job(
        results={
            "failover_past": schema_of(
                "string: user topic; int64: hour_ms long_ids long_states short_ids short_states active_ids "
                "active_states user_short_ids user_active_ids user_ids"
            )
        },
        partial=("lives_by_hour",),
        of_part=_run("failover/by_user", "failover_past"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pass:
    """What is to be computed. Picklable: tasks of Spark receive it."""

    jobs: Sequence[str]
    remember_ms: int
    expiry_ms: int
    question: recommended.Question | None = None
    """Of `recommend`."""

    @property
    def by_id(self) -> Reads:
        """Return the events to read by producer id."""
        return _together([_OF_ALL, *(JOBS[job].by_id for job in self.jobs)])

    @property
    def by_user(self) -> Reads:
        return _together(JOBS[job].by_user for job in self.jobs)

    @property
    def results(self) -> Mapping[str, pa.Schema]:
        return {name: schema for job in self.jobs for name, schema in JOBS[job].results.items()}

    def of_bucket(self, tables: ArrowTables) -> dict[str, pa.Table]:
        """Return the partial tables of a bucket of producer ids. `tables`: those that have rows there."""
        tables = {name: tables.get(name) or read.without_rows(name) for name, read in self.by_id.items()}
        harmful = {"harmful": self.question.harmful} if self.question is not None else {}
        variables = {"remember_ms": self.remember_ms, "expiry_ms": self.expiry_ms}
        with Kernel(tables | harmful, variables) as kernel:
            for script in ("arrivals", "use", *(f"{job}/by_id" for job in self.jobs)):
                kernel.run(script)
            return {name: kernel.table(name) for job in self.jobs for name in JOBS[job].partial}

    def of_part(self, tables: ArrowTables) -> dict[str, pa.Table]:
        """Return the result tables of a part of the users, from all tables."""
        found: dict[str, pa.Table] = {}
        for name in self.jobs:
            job = JOBS[name]
            found |= job.of_part(self, {name: tables[name] for name in (*job.partial, *job.by_user)})
        return {name: table.cast(self.results[name]) for name, table in found.items()}

    def nothing(self) -> dict[str, pa.Table]:
        """Return all tables of a part, without a row."""
        return self.of_bucket({}) | {name: read.without_rows(name) for name, read in self.by_user.items()}


def _together(several: Iterable[Reads]) -> Reads:
    found: dict[str, Read] = {}
    for reads in several:
        for name, read in reads.items():
            columns = f"{found[name].columns} {read.columns}" if name in found else read.columns
            found[name] = Read(columns, read.where)
    return found
