"""`python -m tools.history`: a simulated fleet to try the pipeline on and to measure its accuracy."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pidgate.pipeline.cli import in_sentences
from pidgate.pipeline.commands import common
from pidgate.pipeline.errors import BadOption
from pidgate.pipeline.runs import replacing
from pidgate.pipeline.session import spark_session
from pidgate.pipeline.tables import Tables
from tools.history.job import expected_events, in_shards, labels, sized, write_events
from tools.history.world import DAY_MS, Fleet, World

CHECKOUT = Path(__file__).parents[2]
PLACES = ("events", "labels", "labels_ids")


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def history(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    users: Annotated[int, typer.Option("--users", min=1, max=100_000, help="Number of principals.")] = 500,
    days: Annotated[int, typer.Option("--days", min=1, max=400, help="Number of days.")] = 30,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed generates the same history.")] = 1,
    end: Annotated[
        str | None,
        typer.Option("--end", help="The day after the last one, as 2026-11-21 (default: today), UTC."),
    ] = None,
    events: Annotated[
        int | None,
        typer.Option(
            "--events",
            min=1,
            help="Approximate number of events, reached by scaling the number of processes.",
        ),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option("--scale", help="Instead of --events: factor on the processes of each fleet."),
    ] = None,
    fleet: Annotated[
        Fleet,
        typer.Option("--fleet", help="Users with one pattern each, or modelled on incident reports."),
    ] = Fleet.HABITS,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Generate the events of a fleet of gateways with all patterns, and ground truth labels of its users."""
    _check_size(events, scale)
    begin_ms = _midnight_ms(end) - days * DAY_MS
    world = World(seed=seed, users=users, days=days, begin_ms=begin_ms, scale=scale or 1.0, fleet=fleet)
    began_s = time.monotonic()
    world = sized(world, events) if events is not None else world
    expected = expected_events(world)
    world = in_shards(world, expected)
    # Spark's own Python processes make the events: they find this folder of the checkout by it alone.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    root, console = (
        Tables(spark_session("history", master=master, memory=memory), tables),
        Console(stderr=True),
    )
    _check_is_empty(root)
    console.print(
        f"Generating {days} days of {users} users ({fleet}), {world.gateways} gateways, seed {seed} "
        f"(about {expected:,} events, {world.days * world.shards} tasks)."
    )
    with replacing(root) as run:
        for place in PLACES:
            run.place(place)
        written = {row["type"]: row["rows"] for row in write_events(root.spark, world, run.root).collect()}
        labels(root.spark, world).coalesce(1).write.parquet(run.place("labels"))
    took_s = time.monotonic() - began_s
    rows = sum(written.values())
    if as_json:
        print(json.dumps({"events": written, "seconds": round(took_s, 1), "tables": tables}))
        return
    console.print(
        f"{rows:,} events in {took_s:.0f} s ({rows / took_s:,.0f} a second), under {root.path('events')}:"
    )
    for kind, count in sorted(written.items(), key=lambda one: -one[1]):
        console.print(f"  {count:>12,}  {kind}")
    console.print(
        f"Labels of each user are in {root.path('labels')}, of each producer id in {root.path('labels_ids')}. "
        f"Next: pidgate pipeline run --tables {tables}"
    )


def _check_size(events: int | None, scale: float | None) -> None:
    if events is not None and scale is not None:
        raise BadOption("--events and --scale exclude each other")
    if scale is not None and not 0.05 <= scale <= 1_000:
        raise BadOption("--scale must be from 0.05 to 1000")


def _check_is_empty(root: Tables) -> None:
    for place in PLACES:
        if root.exists(place):
            raise BadOption(
                f"{root.path(place)} already exists, and a generated history must not mix with other data: use "
                "another --tables, or remove that folder"
            )


def _midnight_ms(end: str | None) -> int:
    """Return midnight after the last day. Raises BadOption."""
    try:
        day = datetime.fromisoformat(end) if end else datetime.now(UTC)
    except ValueError:
        raise BadOption(f"--end {end!r} is not a date: write it as 2026-11-21") from None
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return int((midnight - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


if __name__ == "__main__":
    in_sentences(app, "python -m tools.history")
