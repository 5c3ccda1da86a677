"""`pidgate pipeline rates`: reads events, writes the tables of pidgate.pipeline.rates, shows top users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pidgate.pipeline.arrivals import REMEMBER_MS, arrivals
from pidgate.pipeline.commands import common
from pidgate.pipeline.days import Days
from pidgate.pipeline.expiry import expiration_ms
from pidgate.pipeline.kept import kept
from pidgate.pipeline.newest import newest_value
from pidgate.pipeline.rates import by_time, held, users
from pidgate.pipeline.rates.id_hours import id_hours
from pidgate.pipeline.runs import FILES_OF_MANY, Run, replacing
from pidgate.pipeline.tables import Tables
from pidgate.quota import entities
from pidgate.units import about_duration

SHOWN = 10

ExpiryOption = Annotated[
    float | None,
    typer.Option(
        "--expiry-hours",
        min=0.01,
        help="The brokers' producer.id.expiration.ms, in hours (default: from the events, else 24).",
    ),
]
RememberOption = Annotated[
    float | None,
    typer.Option(
        "--remember-hours", min=0.01, help="An id idle for longer is new again (default: likewise)."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the users shown as JSON lines instead.")]


def rates(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    expiry_hours: ExpiryOption = None,
    remember_hours: RememberOption = None,
    as_json: JsonOption = False,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Count each user's producer ids: arrival rates, ids held by brokers, and waiting clients."""
    days = Days.parsed(since, until)
    found, console = common.start("rates", tables, master, memory)
    with replacing(found) as run:
        write_rates(run, days, console.print, expiry_ms=_ms(expiry_hours), remember_ms=_ms(remember_hours))
    _show(found, console, as_json=as_json)


def write_rates(
    run: Run,
    days: Days,
    say: common.Say,
    *,
    expiry_ms: int | None = None,
    remember_ms: int | None = None,
) -> None:
    """Write all tables of the job. None takes the value from the events. Raises HistoryEmpty."""
    tables = run.tables
    decisions = tables.needed_events("decision", days)
    usages = days.of(tables.events("id_usage"))
    expiry_ms = expiry_ms or expiration_ms(tables.events("topology"))
    remember_ms = remember_ms or newest_value(tables.events("config"), "remember_ms") or REMEMBER_MS
    say(f"States expire after {about_duration(expiry_ms)}, ids are remembered {about_duration(remember_ms)}.")
    hours = id_hours(decisions, usages, expiry_ms)
    arriving = by_time.arriving(arrivals(decisions, remember_ms), decisions)
    with _many_users(tables), kept(hours), kept(arriving), kept(by_time.by_hour(hours, arriving)) as by_hour:
        say("Per user and time ...")
        run.write("rates_by_time", by_time.by_time(by_hour))
        say("Per client ...")
        run.write("rates_clients", by_time.rates_clients(hours, arriving), files=FILES_OF_MANY)
        say("What brokers hold ...")
        sketches = run.write("rates_sketches", users.daily_sketches(hours.where("in_day = 1")))
        with kept(held.id_stays(hours)) as stays:
            holding = run.write("held_by_hour", held.held_by_hour(stays, expiry_ms))
            say("Per user ...")
            outcomes = days.of(tables.events("refusal_outcome"))
            run.write("rates_users", users.rates_users(stays, by_hour, holding, sketches, outcomes))


@contextmanager
def _many_users(tables: Tables) -> Iterator[None]:
    """Aggregate sketches and percentiles in a hash table; above 128 groups Spark would sort."""
    setting = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
    before = tables.spark.conf.get(setting)
    tables.spark.conf.set(setting, "20000")
    try:
        yield
    finally:
        tables.spark.conf.set(setting, before or "128")


def _ms(hours: float | None) -> int | None:
    return None if hours is None else round(hours * 3_600_000)


def _show(tables: Tables, console: Console, *, as_json: bool) -> None:
    counted = tables.written("rates_users")
    top = counted.orderBy(counted.new_ids.desc(), "user").limit(SHOWN)
    if as_json:
        common.print_json(top)
        return
    shown = Table(title=f"Users by new producer ids (the first {SHOWN} of {counted.count()})")
    shown.add_column("user")
    columns = {
        "ids": "ids",
        "new_ids": "new",
        "peak_new_ids_per_hour": "peak/h",
        "new_ids_per_hour_p95": "p95/h",
        "refusals": "refusals",
        "refused_ids": "refused ids",
        "gave_up": "gave up",
        "ids_held": "held",
        "states_held": "states held",
    }
    for head in columns.values():
        shown.add_column(head, justify="right")
    for row in top.collect():
        shown.add_row(
            entities.shown(row.user) or "(unidentified)", *(f"{row[name]:,.0f}" for name in columns)
        )
    console.print(shown)
    console.print(
        f"Written to {tables.path('results')}: rates_*, held_by_hour. Next: pidgate pipeline offenders."
    )
