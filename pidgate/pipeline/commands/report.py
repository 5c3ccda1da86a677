"""`pidgate pipeline report`: writes the report, prints a summary of its findings as text or JSON."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from pidgate.pipeline.commands import common
from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.errors import BadOption
from pidgate.pipeline.files import Files
from pidgate.pipeline.report.findings import findings, summary
from pidgate.pipeline.report.page import page
from pidgate.pipeline.report.reading import found as read
from pidgate.pipeline.report.reading import whole
from pidgate.pipeline.report.rows import JOB_OF, Found
from pidgate.pipeline.tables import Tables
from pidgate.units import about_size

_LOOKS = {"bad": "bold red", "warn": "yellow", "good": "green"}
_NOT_ALWAYS = frozenset(("detector_accuracy", "detector_confusion"))
"""Written only if users have labels."""

OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Where to write the report (default: report.html under --tables)."),
]
USERS = 50


class Made(NamedTuple):
    """A written report and its path."""

    found: Found
    path: str
    in_bytes: int


def report(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    output: OutputOption = None,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    users: Annotated[
        int, typer.Option("--users", min=0, max=500, help="Number of users with a page, worst first.")
    ] = USERS,
    as_json: common.JsonOption = False,
) -> None:
    """Write the results of all jobs to one HTML file: findings, charts, and the recommended quotas."""
    days = Days.parsed(since, until)
    made = write_report(Tables(None, tables), output, users=users, days=days)
    show(Console(stderr=True), made, as_json=as_json)


def write_report(
    tables: Tables, output: Path | None = None, *, users: int = USERS, days: Days = EVER
) -> Made:
    """Write the report; `days` limit its charts and sums. Raises HistoryEmpty, TableUnreadable, BadOption."""
    with whole(tables):
        found = read(tables, pages=users, made_ms=time.time_ns() // 1_000_000, days=days)
        text = page(found)
    return Made(found, publish(tables, text, output), len(text.encode()))


def publish(tables: Tables, text: str, output: Path | None) -> str:
    """Write to the file `output`, or to report.html under the tables; return the path. Raises BadOption.

    Atomic: readers see the old or the new text. It contains personal data, so on a disk only its owner may read it.
    """
    files, name, path = tables.files, "report.html", tables.path("report.html").removeprefix("file://")
    if output is not None:
        files, name, path = Files(str(output.parent)), output.name, str(output)
    try:
        files.replace(name, text, private=True)
    except (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError) as error:
        reason = os.strerror(error.errno or 0)
        raise BadOption(
            f"the report cannot be written to {path} ({reason}): give another file by --output."
        ) from error
    return path


def show(console: Console, made: Made, *, as_json: bool) -> None:
    """Print a summary to stderr, or with `as_json` an object to stdout."""
    found, path, in_bytes = made
    missing = sorted({JOB_OF[name] for name in JOB_OF.keys() - found.has - _NOT_ALWAYS})
    if as_json:
        shown = [asdict(one) for one in findings(found)]
        print(json.dumps({"report": path, "summary": summary(found), "findings": shown, "not_run": missing}))
        return
    # Text, not markup: names may contain brackets.
    console.print(Text(summary(found)))
    for one in findings(found):
        console.print(Text.assemble("  ", (one.headline, _LOOKS[one.weight])))
    if missing:
        console.print(Text(f"Missing, because not run: {', '.join(missing)}.", style="dim"))
    # A path on one line can be copied.
    console.print(Text(f"{about_size(in_bytes)} written to {path}"), soft_wrap=True)
