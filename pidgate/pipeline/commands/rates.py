"""`pidgate pipeline rates`: reads events, writes the tables of pidgate.pipeline.rates, shows top users."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pidgate.pipeline.commands import common
from pidgate.pipeline.days import Days
from pidgate.pipeline.engines import Engine, Write, results_of
from pidgate.pipeline.passes import RATES, RESULTS, Pass
from pidgate.pipeline.runs import Run, replacing
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
    engine: common.EngineOption = Engine.SPARK,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Count each user's producer ids: arrival rates, ids held by brokers, and waiting clients."""
    days = Days.parsed(since, until)
    found, console = common.start("rates", tables, master, memory, engine)
    todo = common.pass_over(found, days, RATES, expiry_ms=_ms(expiry_hours), remember_ms=_ms(remember_hours))
    with replacing(found) as run:
        write_rates(run, console.print, todo, results_of(todo, found, days, run.keep))
    show_rates(found, console, as_json=as_json)
    if not as_json:
        console.print(
            f"Written to {found.path('results')}: rates_*, held_by_hour. Next: pidgate pipeline offenders."
        )


def write_rates(run: Run, say: common.Say, todo: Pass, write: Write) -> None:
    """Write all tables of the job."""
    expire, remembered = about_duration(todo.expiry_ms), about_duration(todo.remember_ms)
    say(f"States expire after {expire}, ids are remembered {remembered}.")
    for name in RESULTS[RATES]:
        write(run, name)


def _ms(hours: float | None) -> int | None:
    return None if hours is None else round(hours * 3_600_000)


def show_rates(tables: Tables, console: Console, *, as_json: bool = False) -> None:
    top = tables.query("rates_users", f'from found order by new_ids desc, "user" limit {SHOWN}')
    if as_json:
        common.print_rows(top)
        return
    ((users,),) = (row.values() for row in tables.query("rates_users", "select count(*) from found"))
    shown = Table(title=f"Users by new producer ids (the first {SHOWN} of {users})")
    shown.add_column("user", overflow="fold", min_width=20)
    columns = {
        "new_ids": "new ids",
        "peak_new_ids_per_hour": "peak/h",
        "new_ids_per_hour_p95": "p95/h",
        "refused_ids": "refused",
        "gave_up": "gave up",
        "ids_held": "held",
    }
    for head in columns.values():
        shown.add_column(head, justify="right")
    for row in top:
        user = entities.shown(row["user"]) or "(unidentified)"
        shown.add_row(user, *(f"{row[name]:,.0f}" for name in columns))
    console.print(shown)
