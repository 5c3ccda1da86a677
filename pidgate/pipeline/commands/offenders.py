"""`pidgate pipeline offenders`."""

from __future__ import annotations

from typing import Annotated

import typer
from pyspark.sql import DataFrame, Row
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pidgate.pipeline.commands import common
from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.offenders.evaluation import LABELS, accuracy, confusion
from pidgate.pipeline.offenders.stages import Events
from pidgate.pipeline.offenders.stages import offenders as found
from pidgate.pipeline.runs import FILES_OF_MANY, Run, replacing
from pidgate.pipeline.tables import Tables

SHOWN = 20
"""Findings and kinds of mistakes on the screen; the result has all of them."""

STAGES = {
    "producers": "producer ids",
    "places": "places (a client id at an address)",
    "sources": "sources of new ids",
    "calm": "producer ids of calm sources",
    "apps": "applications of calm producers",
}
"""Nouns for the rows of each stage."""


def offenders(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the harmful findings as JSON lines.")
    ] = False,
) -> None:
    """Find the users that burn producer ids and the pattern: restart loops, a producer per error or batch."""
    days = Days.parsed(since, until)
    at, console = common.start("offenders", tables, master, memory)
    with replacing(at) as run:
        write_offenders(run, console.print, days)
    _show(at, console, as_json)
    _show_accuracy(at, console)
    console.print(
        f"Written to {at.path('results', 'offenders')}. Next: `pidgate pipeline recommend`, then `report`."
    )


def write_offenders(run: Run, say: common.Say, days: Days = EVER) -> None:
    """Write offenders and offenders_places; with labels also detector_accuracy and detector_confusion.

    Raises HistoryEmpty.
    """
    at = run.tables
    events = Events(
        decisions=at.needed_events("decision", days),
        usage=days.of(at.events("id_usage")),
        errors=days.of(at.events("produce_error")),
        connections=days.of(at.events("connection")),
    )

    def keep(name: str, frame: DataFrame) -> DataFrame:
        stage = run.keep(name, frame)
        say(f"{stage.count():,} {STAGES[name]}")
        return stage

    judged = found(events, keep)
    findings = run.write("offenders", judged.findings)
    run.write("offenders_places", judged.places, files=FILES_OF_MANY)
    if at.exists("labels"):
        labels = at.read("labels", schema=LABELS)
        run.write("detector_accuracy", accuracy(findings, labels))
        run.write("detector_confusion", confusion(findings, labels))


def _show(at: Tables, console: Console, as_json: bool) -> None:
    findings = at.written("offenders")
    harmful = findings.where("harmful").orderBy("new_ids", "user", ascending=False)
    counts = {row["pattern"]: row["count"] for row in findings.groupBy("pattern").count().collect()}
    console.print(", ".join(f"{pattern}: {count:,} users" for pattern, count in sorted(counts.items())))
    if as_json:
        common.print_json(harmful)
        return
    worst: list[Row] = harmful.limit(SHOWN).collect()
    for row in worst:
        print(row["sentence"])
    if not worst:
        console.print("No user burns producer ids.")
    elif (more := harmful.count() - len(worst)) > 0:
        console.print(escape(f"... and {more:,} more."))


def _show_accuracy(at: Tables, console: Console) -> None:
    """Show precision and recall if users have labels."""
    if not at.exists("labels"):
        return
    shown = Table(
        "pattern", "users", "found", "precision", "95 %", "recall", "95 %", title="Against the labels"
    )
    for row in at.written("detector_accuracy").orderBy("pattern").collect():
        counts = (row["pattern"], str(row["users"]), str(row["found"]))
        shown.add_row(*counts, *_share(row, "precision"), *_share(row, "recall"))
    console.print(shown)


def _share(row: Row, name: str) -> tuple[str, str]:
    if row[name] is None:
        return "-", "-"
    return f"{row[name]:.3f}", f"{row[f'{name}_low']:.3f} to {row[f'{name}_high']:.3f}"
