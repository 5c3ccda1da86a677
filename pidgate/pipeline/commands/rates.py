"""`pidgate pipeline rates`: reads events, writes the tables of pidgate.pipeline.rates, shows top users."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pidgate.pipeline.commands import common
from pidgate.pipeline.days import Days
from pidgate.pipeline.engines import Engine, Results, results_of
from pidgate.pipeline.passes import JOBS, RATES, Pass
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.tables import Tables
from pidgate.quota import entities
from pidgate.units import about_duration

SHOWN = 10

JsonOption = Annotated[bool, typer.Option("--json", help="Print the users shown as JSON lines instead.")]


def rates(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    as_json: JsonOption = False,
    engine: common.EngineOption = Engine.SPARK,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Count each user's producer ids: arrival rates, ids held by brokers, and waiting clients."""
    days = Days.parsed(since, until)
    found, console = common.start("rates", tables, master, memory, engine)
    todo = common.pass_over(found, days, RATES)
    with replacing(found) as run:
        write_rates(run, console.print, todo, results_of(todo, run, days))
    show_rates(found, console, as_json=as_json)
    if not as_json:
        console.print(
            f"Written to {found.path('results')}: rates_*, held_by_hour. Next: pidgate pipeline offenders."
        )


def write_rates(run: Run, say: common.Say, todo: Pass, found: Results) -> None:
    """Write all tables of the job."""
    expire, remembered = about_duration(todo.expiry_ms), about_duration(todo.remember_ms)
    say(f"States expire after {expire}, ids are remembered {remembered}.")
    for name in JOBS[RATES].results:
        found.write(run, name)


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
