"""The tables of `rates` against DuckDB, with queries of their own on the same Parquet files."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from pyspark.sql import functions as f
from rich.console import Console
from typer.testing import CliRunner

from pidgate.pipeline.cli import app
from pidgate.pipeline.commands.rates import write_rates
from pidgate.pipeline.days import Days
from pidgate.pipeline.errors import BadOption, HistoryEmpty
from pidgate.pipeline.rates.users import LG_REGISTERS, daily_sketches, estimated_ids
from pidgate.pipeline.runs import replacing
from tests.pipeline.made_events import DAY, HOUR, MINUTE, MONDAY, MadeUp, event, write_events
from tests.pipeline.test_arrivals import by_a_loop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pidgate.pipeline.tables import Tables


STANDARD_ERROR = 1.04 / math.sqrt(2**LG_REGISTERS)
ERROR_BOUND = 3 * STANDARD_ERROR
"""Relative; holds in 99.7 of 100 cases."""
EXPIRY_MS = 5 * HOUR
"""Short, so that ids expire while the history lasts, some of them twice."""

SETUP = """
    create view used as
        select "user", client_id, producer_id, wall_time_ms as a, wall_time_ms as b, 0 as requests, null as partitions
        from decision where decision = 'admit' and reason <> 'inherited'
        union all
        select "user", client_id, producer_id, first_ms, last_ms, requests, partitions from id_usage;
    create view refused as
        select "user", client_id, wall_time_ms as at_ms, 1 as n
        from decision where decision = 'refuse';
    create view came as
        select "user", client_id, coalesce(first_admitted_ms, at_ms) as at_ms, first_admitted_ms is not null as is_new
        from arrived;
    create view new as select "user", client_id, at_ms from came where is_new;
    create view units(unit, ms) as values ('minute', 60000), ('hour', 3600000), ('day', 86400000);
    create view everything as
        select "user", a, b from used union all select "user", at_ms, at_ms from refused
        union all select "user", at_ms, at_ms from came;
    create view spans as select "user", min(a) as first_ms, max(b) as last_ms from everything group by 1;
"""

BY_TIME = """
    with happened as (
        select "user", unit, ms, at_ms // ms * ms as start_ms from (
            select "user", at_ms from came union all select "user", at_ms from refused
        ), units
        union
        select "user", unit, ms, unnest(range(a // ms * ms, b + 1, ms)) from used, units where unit <> 'minute'
    )
    select "user", unit, start_ms,
        (select count(distinct producer_id) from used u
         where u."user" = h."user" and a < start_ms + ms and b >= start_ms),
        (select count(*) from new n where n."user" = h."user" and at_ms between start_ms and start_ms + ms - 1),
        (select coalesce(sum(n), 0)::bigint from refused r
         where r."user" = h."user" and at_ms between start_ms and start_ms + ms - 1)
    from happened h order by all
"""

CLIENTS = """
    with clients as (
        select "user", client_id from used union select "user", client_id from came union
        select "user", client_id from refused
    ), hours as (
        select "user", client_id, at_ms // 3600000 as hour, count(*) as n from new group by all
    )
    select "user", client_id,
        (select count(distinct producer_id) from used u
         where u."user" = c."user" and u.client_id is not distinct from c.client_id),
        (select count(*) from new n where n."user" = c."user" and n.client_id is not distinct from c.client_id),
        coalesce((select max(n) from hours h
         where h."user" = c."user" and h.client_id is not distinct from c.client_id), 0),
        (select coalesce(sum(requests), 0)::bigint from used u
         where u."user" = c."user" and u.client_id is not distinct from c.client_id),
        (select coalesce(sum(n), 0)::bigint from refused r
         where r."user" = c."user" and r.client_id is not distinct from c.client_id)
    from clients c order by all
"""

HELD = """
    with stretches as (
        select "user", producer_id, a, max(b) as b, max(partitions) as partitions from used group by all
    ), marked as (
        select *, max(b) over (
            partition by "user", producer_id order by a rows between unbounded preceding and 1 preceding
        ) as before from stretches
    ), numbered as (
        select *, count(case when before is null or a - before > $expiry then 1 end)
            over (partition by "user", producer_id order by a) as stay from marked
    ), stays as (
        select "user", producer_id, stay, min(a) // 600000 as first_step, (max(b) + $expiry) // 600000 as last_step,
            coalesce(max(partitions), 1) as states
        from numbered group by all
    ), steps as (
        select "user", step, count(*) as ids, sum(states) as states
        from (select "user", states, unnest(range(first_step, last_step + 1)) as step from stays) group by all
    )
    select "user", step // 6 * 3600000 as hour_ms, max(ids), max(states)::bigint from steps group by all order by all
"""

USERS = """
    with lives as (
        select "user", producer_id, max(b) - min(a) as life, sum(requests) as requests, max(partitions) as partitions
        from used group by all
    ), hours as (
        select "user", hour,
            (select count(*) from new n where n."user" = s."user" and at_ms // 3600000 = hour) as n
        from (select "user", unnest(range(first_ms // 3600000, last_ms // 3600000 + 1)) as hour from spans) s
    ), waited as (
        select "user", quantile_disc(waited_ms, 0.5) as p50, quantile_disc(waited_ms, 0.95) as p95
        from refusal_outcome where outcome = 'admitted' group by all
    )
    select s."user", first_ms, last_ms,
        (select count(*) from lives l where l."user" = s."user"),
        (select count(*) from new n where n."user" = s."user"),
        coalesce((select max(new_ids) from times t where t."user" = s."user" and unit = 'minute'), 0),
        coalesce((select max(new_ids) from times t where t."user" = s."user" and unit = 'hour'), 0),
        coalesce((select max(new_ids) from times t where t."user" = s."user" and unit = 'day'), 0),
        (select quantile_cont(n, 0.5) from hours h where h."user" = s."user"),
        (select quantile_cont(n, 0.95) from hours h where h."user" = s."user"),
        (select quantile_cont(n, 0.99) from hours h where h."user" = s."user"),
        (select quantile_disc(life, 0.5) from lives l where l."user" = s."user"),
        (select quantile_disc(life, 0.95) from lives l where l."user" = s."user"),
        coalesce((select sum(requests)::bigint from lives l where l."user" = s."user"), 0),
        (select sum(requests) / count(*) from lives l where l."user" = s."user"),
        (select avg(partitions) from lives l where l."user" = s."user"),
        coalesce((select sum(n)::bigint from refused r where r."user" = s."user"), 0),
        (select count(*) from came c where not is_new and c."user" = s."user"),
        (select p50 from waited w where w."user" = s."user"),
        (select p95 from waited w where w."user" = s."user"),
        (select count(*) from refusal_outcome o where o."user" = s."user" and outcome = 'gave_up'),
        coalesce((select max(ids) from held h where h."user" = s."user"), 0),
        coalesce((select max(states) from held h where h."user" = s."user"), 0)
    from spans s order by all
"""


class Oracle:
    """DuckDB on the same files; new ids come from the loop of test_arrivals."""

    def __init__(self, root: str, made: MadeUp) -> None:
        self._duck = duckdb.connect()
        for event_type in made.of:
            files = f"{root}/events/{event_type}/*/*/*.parquet"
            self._duck.execute(
                f"create view {event_type} as from read_parquet('{files}', hive_partitioning = false)"
            )
        arrived = [
            (one["user"], one["client_id"], one["at_ms"], one["first_admitted_ms"])
            for one in by_a_loop(made.of["decision"], DAY)
        ]
        self._duck.execute(
            'create table arrived("user" text, client_id text, at_ms bigint, first_admitted_ms bigint)'
        )
        self._duck.executemany("insert into arrived values (?, ?, ?, ?)", arrived)
        self._duck.execute(SETUP)
        self.by_time = self._rows(BY_TIME)
        self.held = self._rows(HELD, expiry=EXPIRY_MS)
        self._keep("times", ("user", "unit", "start_ms", "ids", "new_ids", "refusals"), self.by_time)
        self._keep("held", ("user", "hour_ms", "ids", "states"), self.held)
        self.clients = self._rows(CLIENTS)
        self.users = self._rows(USERS)

    def _rows(self, query: str, **values: int) -> list[tuple[Any, ...]]:
        return self._duck.execute(query, values).fetchall()

    def _keep(self, name: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        types = ("text" if column in ("user", "unit") else "bigint" for column in columns)
        named = ", ".join(f'"{column}" {kind}' for column, kind in zip(columns, types, strict=True))
        self._duck.execute(f"create table {name}({named})")
        self._duck.executemany(f"insert into {name} values ({', '.join('?' * len(columns))})", rows)


def rows_of(tables: Tables, name: str, *left_out: str) -> list[tuple[Any, ...]]:
    """A result as DuckDB reads it, in the same order."""
    exclude = f"exclude ({', '.join(left_out)})" if left_out else ""
    path = tables.path("results", name, "*.parquet")
    return duckdb.connect().execute(f"select * {exclude} from '{path}' order by all").fetchall()


def write(tables: Tables, days: Days | None = None, expiry_ms: int | None = EXPIRY_MS) -> None:
    with replacing(tables) as run:
        write_rates(run, days or Days(), Console(quiet=True).print, expiry_ms=expiry_ms)


def approximately(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [
        tuple(pytest.approx(value) if isinstance(value, float) else value for value in row) for row in rows
    ]


def test_all_tables_are_what_duckdb_finds(tables: Tables) -> None:
    made = MadeUp(seed=11, ids=220)
    made.write(tables.root)
    write(tables)
    expected = Oracle(tables.root, made)
    assert rows_of(tables, "rates_by_time") == expected.by_time
    assert rows_of(tables, "rates_clients") == expected.clients
    assert rows_of(tables, "held_by_hour") == expected.held
    assert rows_of(tables, "rates_users", "ids_hll", "ids_hll_error") == approximately(expected.users)
    _the_data_are_worth_it(expected)
    _one_event_less_is_noticed(tables, made, expected)


def _the_data_are_worth_it(expected: Oracle) -> None:
    assert len(expected.users) == 5
    assert {row[1] for row in expected.by_time} == {"minute", "hour", "day"}
    assert any(row[1] is None for row in expected.clients)
    in_use_at_once = max(row[3] for row in expected.by_time if row[1] == "minute")
    assert in_use_at_once > 3


def _one_event_less_is_noticed(tables: Tables, made: MadeUp, expected: Oracle) -> None:
    made.of["id_usage"].pop()
    made.of["decision"].pop(0)
    root = tables.path("one-less")
    made.write(root)
    other = Oracle(root, made)
    assert other.by_time != expected.by_time
    assert other.users != expected.users


def test_a_history_of_one_refusal(tables: Tables) -> None:
    refused = {"decision": "refuse", "reason": "blocked"}
    write_events(
        tables.root, "decision", [event("decision", user="bob", client_id="b", producer_id=5, **refused)]
    )
    write(tables, expiry_ms=None)
    (row,) = tables.spark.read.parquet(tables.path("results", "rates_users")).collect()
    assert (row.user, row.first_ms, row.last_ms) == ("bob", MONDAY, MONDAY)
    assert (row.ids, row.new_ids, row.refused_ids, row.refusals, row.gave_up) == (0, 0, 1, 1, 0)
    assert (row.ids_held, row.states_held, row.peak_new_ids_per_hour, row.new_ids_per_hour_p99) == (
        0,
        0,
        0,
        0.0,
    )
    assert (row.requests_per_id, row.life_ms_p50, row.waited_ms_p50, row.ids_hll_error) == (None,) * 4
    assert rows_of(tables, "held_by_hour") == []
    assert rows_of(tables, "rates_clients") == [("bob", "b", 0, 0, 0, 0, 1)]


def test_the_command_reads_the_days_asked_for_and_the_expiry_from_the_events(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three days with an id each; the brokers' expiry is two hours, then, by the newest word, one."""
    admitted = {"user": "bob", "decision": "admit", "reason": "observe"}
    days = [
        event("decision", producer_id=n, wall_time_ms=MONDAY + n * DAY + 50 * MINUTE, **admitted)
        for n in range(3)
    ]
    write_events(tables.root, "decision", days)
    spoken = [(0, 2 * HOUR), (DAY, HOUR), (2 * DAY, None)]
    write_events(
        tables.root,
        "topology",
        [
            event(
                "topology", wall_time_ms=MONDAY + at, producer_id_expiration_ms=expiry, brokers=[], topics=[]
            )
            for at, expiry in spoken
        ],
    )
    inner = Days.parsed("2026-09-29", "2026-09-29")
    plan = inner.of(tables.events("decision"))._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [isnotnull(day" in plan
    monkeypatch.setattr("pidgate.pipeline.session.spark_session", lambda *_, **__: tables.spark)
    day = ["--since", "2026-09-29", "--until", "2026-09-29"]
    answer = CliRunner().invoke(app, ["rates", "--tables", tables.root, *day])
    assert answer.exit_code == 0, answer.output
    assert "bob" in answer.stderr
    assert tables.path("results") in answer.stderr.replace("\n", "")
    (row,) = tables.spark.read.parquet(tables.path("results", "rates_users")).collect()
    assert (row.ids, row.new_ids, row.first_ms) == (1, 1, MONDAY + DAY + 50 * MINUTE)
    hours = [(hour - MONDAY - DAY) // HOUR for _, hour, *_ in rows_of(tables, "held_by_hour")]
    assert hours == [0, 1], "in use at 00:50, expired at 01:50, looked for by 02:00"


@pytest.mark.parametrize("days", [("2026-9-1", None), (None, "yesterday"), ("2026-09-02", "2026-09-01")])
def test_days_that_cannot_be(days: tuple[str | None, str | None]) -> None:
    with pytest.raises(BadOption):
        Days.parsed(*days)


def test_no_history_is_said(tables: Tables) -> None:
    with pytest.raises(HistoryEmpty, match="ingest"):
        write(tables)


def test_sketches_of_overlapping_days_keep_to_their_error(spark: SparkSession) -> None:
    """A hundred users of 3,000 ids each, every id on two of three days."""
    ids = spark.range(300_000).select(
        (f.col("id") % 100).alias("user"),
        f.col("id").alias("producer_id"),
        f.explode(f.array(*(f.lit(MONDAY) + (f.col("id") + n) % 3 * DAY for n in range(2)))).alias("hour_ms"),
    )
    missed = [(row.ids_hll - 3_000) / 3_000 for row in estimated_ids(daily_sketches(ids)).collect()]
    assert len(missed) == 100
    assert sum(abs(by) <= ERROR_BOUND for by in missed) >= 98
    assert 0.3 * STANDARD_ERROR < math.sqrt(fmean(by**2 for by in missed)) < 1.2 * STANDARD_ERROR
