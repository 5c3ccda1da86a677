"""`pidgate pipeline offenders`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import pyarrow as pa
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pidgate.findings.accuracy import accuracy, confusion
from pidgate.findings.rules import PATTERNS
from pidgate.pipeline.commands import common
from pidgate.pipeline.days import Days
from pidgate.pipeline.engines import Engine, Results, results_of
from pidgate.pipeline.passes import JOBS, OFFENDERS
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.schemas import schema_of
from pidgate.pipeline.tables import Tables

SHOWN = 20
"""Findings and kinds of mistakes on the screen; the result has all of them."""
ACCURACY: Final = {
    "detector_accuracy": schema_of(
        "string: pattern; int64: users found true_positives; "
        "double: precision precision_low precision_high recall recall_low recall_high"
    ),
    "detector_confusion": schema_of("string: actual predicted; int64: users"),
}
"""Result tables where users have labels."""


def offenders(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    engine: common.EngineOption = Engine.SPARK,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the harmful findings as JSON lines.")
    ] = False,
) -> None:
    """Find the users that burn producer ids and the pattern: restart loops, a producer per error or batch."""
    days = Days.parsed(since, until)
    at, console = common.start("offenders", tables, master, memory, engine)
    todo = common.pass_over(at, days, OFFENDERS)
    with replacing(at) as run:
        write_offenders(run, results_of(todo, run, days))
    show_offenders(at, console, as_json=as_json)
    _show_accuracy(at, console)
    console.print(
        f"Written to {at.path('results', 'offenders')}. Next: `pidgate pipeline recommend`, then `report`."
    )


def write_offenders(run: Run, found: Results) -> None:
    """Write offenders and offenders_places; with labels also detector_accuracy and detector_confusion."""
    for name in JOBS[OFFENDERS].results:
        found.write(run, name)
    if run.tables.exists("labels"):
        labels, named = _pairs(run.tables.query_at("labels")), _pairs(run.query("offenders"))
        for name, rows in {
            "detector_accuracy": accuracy(named, labels, PATTERNS),
            "detector_confusion": confusion(named, labels),
        }.items():
            run.write(name, pa.Table.from_pylist(list(rows), ACCURACY[name]))


def _pairs(rows: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    return {(row["user"], row["pattern"]) for row in rows}


def show_offenders(at: Tables, console: Console, *, as_json: bool = False) -> None:
    counts = at.query("offenders", "select pattern, count(*) as users from found group by all order by all")
    console.print(", ".join(f"{row['pattern']}: {row['users']:,} users" for row in counts))
    harmful = at.query("offenders", 'from found where harmful order by new_ids desc, "user" desc')
    if as_json:
        common.print_rows(harmful)
        return
    for row in harmful[:SHOWN]:
        print(row["sentence"])
    if not harmful:
        console.print("No user burns producer ids.")
    elif (more := len(harmful) - SHOWN) > 0:
        console.print(escape(f"... and {more:,} more."))


def _show_accuracy(at: Tables, console: Console) -> None:
    """Show precision and recall if users have labels."""
    if not at.exists("labels"):
        return
    shown = Table(
        "pattern", "users", "found", "precision", "95 %", "recall", "95 %", title="Against the labels"
    )
    for row in at.query("detector_accuracy", "from found order by pattern"):
        counts = (row["pattern"], str(row["users"]), str(row["found"]))
        shown.add_row(*counts, *_share(row, "precision"), *_share(row, "recall"))
    console.print(shown)


def _share(row: Mapping[str, Any], name: str) -> tuple[str, str]:
    if row[name] is None:
        return "-", "-"
    return f"{row[name]:.3f}", f"{row[f'{name}_low']:.3f} to {row[f'{name}_high']:.3f}"
