"""`pidgate pipeline recommend`: replays history at candidate rates, writes the tables, the quotas file and its diff."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from rich.console import Console
from rich.table import Table

from pidgate.pipeline.commands import common
from pidgate.pipeline.errors import BadOption
from pidgate.pipeline.recommend.candidates import alive, candidates, needs
from pidgate.pipeline.recommend.chosen import HEADROOM, filter_accuracy, recommend_candidates, recommendations
from pidgate.pipeline.recommend.in_force import newest, settings, users_in_force, with_current
from pidgate.pipeline.recommend.judged import (
    LABELS_OF_IDS,
    arrived,
    judged_by_findings,
    judged_by_labels,
    refreshed,
)
from pidgate.pipeline.recommend.quotas_file import NewRate, changes_diff, mode_of, quotas_yaml
from pidgate.pipeline.recommend.trials import Course, trials
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.tables import Tables
from pidgate.quota.settings import ProducerIdSettings

LEARNT_SHARE = 23 / 30
DAY_MS = 86_400_000
SHOWN = 12


def recommend(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    candidates: Annotated[
        str,
        typer.Option(help="Rates to try for everybody: 10,50,100 (default: steps around each need)."),
    ] = "",
    headroom: Annotated[
        float, typer.Option(min=1.0, help="Times the least rate that refuses no healthy id.")
    ] = HEADROOM,
    longest_wait: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=120.0,
            help="Seconds that healthy ids may wait where a rogue cannot be held otherwise (0: refuse none).",
        ),
    ] = 0.0,
    enforce: Annotated[
        bool,
        typer.Option("--enforce", help="Write `mode: enforce` beside new rates (default: observe first)."),
    ] = False,
    bootstrap_servers: Annotated[
        str, typer.Option(help="For the file's `cluster` (default: brokers that events name).")
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the recommendations as JSON lines instead.")
    ] = False,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Find each user's quota: tried on its own history, judged on days that were not learnt from."""
    tried = rates_of(candidates)
    found, console = common.start("recommend", tables, master, memory)
    servers = [server.strip() for server in bootstrap_servers.split(",") if server.strip()]
    with replacing(found) as run:
        advised = write_recommendations(
            run, console, tried=tried, headroom=headroom, longest_wait_ms=round(longest_wait * 1000)
        )
        write_files(run, console, advised, enforce=enforce, servers=servers)
    _show(found, console, as_json=as_json)


def rates_of(text: str) -> list[float]:
    """`10,50,100`. Raises BadOption."""
    try:
        rates = [float(rate) for rate in text.split(",") if rate.strip()]
    except ValueError as error:
        raise BadOption(f"--candidates takes numbers, as in 10,50,100, not {text!r}") from error
    if any(not 0.001 <= rate <= 1e9 for rate in rates):
        raise BadOption("--candidates: a rate lies between 0.001 and 1,000,000,000 ids per window")
    return rates


@dataclass(frozen=True, slots=True)
class Advised:
    """What the run has found: the result `recommendations`, and the course of its trials."""

    course: Course
    rows: DataFrame


def write_recommendations(
    run: Run,
    console: Console,
    *,
    tried: Sequence[float] = (),
    headroom: float = HEADROOM,
    longest_wait_ms: int = 0,
) -> Advised:
    """The tables recommendations, recommend_candidates and filter_accuracy. Raises HistoryEmpty."""
    tables = run.tables
    decisions = tables.needed_events("decision")
    config = newest(tables.events("config"))
    shape = settings(config)
    course = _course(decisions, shape)
    console.print(
        f"{(course.end_ms - course.begin_ms) / DAY_MS:.1f} days of history: learnt from the first "
        f"{(course.split_ms - course.begin_ms) / DAY_MS:.1f}, judged on the rest."
    )
    judged, by = _judged(tables, arrived(decisions, shape.remember_ms))
    judged = judged.persist(StorageLevel.DISK_ONLY)
    try:
        need = needs(judged, shape.window_ms, course.split_ms)
        need = with_current(need, users_in_force(tables.events("config")), config)
        used = refreshed(decisions)
        living = alive(used, shape.slice_ms, course.split_ms)
        need = need.join(living, "user", "left").join(_history_of(tables, decisions), "user", "left")
        need = need.fillna(0, ["alive", "history_refusals"])
        plan = candidates(need, shape.window_ms, tried).persist()
        console.print(f"Arrivals of {plan.count()} users, {by}. Every rate is tried on all of them ...")
        outcomes = run.keep("outcomes", trials(judged, used, plan, course))
        rated = run.write("recommend_candidates", recommend_candidates(outcomes))
        run.write("filter_accuracy", filter_accuracy(outcomes, shape.false_positive_rate))
        advised = run.write("recommendations", recommendations(rated, plan, headroom, longest_wait_ms))
        plan.unpersist()
    finally:
        judged.unpersist()
    return Advised(course, advised)


def _course(decisions: DataFrame, shape: ProducerIdSettings) -> Course:
    begin_ms, last_ms = decisions.agg(f.min("wall_time_ms"), f.max("wall_time_ms")).collect()[0]
    end_ms = last_ms + 1
    return Course(shape, begin_ms, begin_ms + int((end_ms - begin_ms) * LEARNT_SHARE), end_ms)


def _judged(tables: Tables, arriving: DataFrame) -> tuple[DataFrame, str]:
    """The arrivals with `healthy`, and in words who says so."""
    if tables.exists("labels_ids"):
        labels = tables.read("labels_ids", schema=LABELS_OF_IDS)
        return judged_by_labels(arriving, labels), "healthy or not as the history's own labels say"
    offenders = tables.result("offenders")
    if offenders is not None:
        return judged_by_findings(arriving, offenders), "healthy unless `offenders` found harm"
    return (
        arriving.withColumn("healthy", f.lit(True)),
        "all taken for healthy: run `pidgate pipeline offenders` first, or no rogue is held",
    )


def _history_of(tables: Tables, decisions: DataFrame) -> DataFrame:
    """Per user: history_refusals, and `patterns`: the harmful ones that are found."""
    refused = f.expr("sum(if(decision = 'refuse', 1 + suppressed_count, 0))")
    refusals = decisions.where("user != ''").groupBy("user").agg(refused.alias("history_refusals"))
    offenders = tables.result("offenders")
    if offenders is None:
        return refusals.withColumn("patterns", f.array().cast("array<string>"))
    harmful = f.array_sort(f.collect_set(f.when(f.col("harmful"), f.col("pattern")))).alias("patterns")
    found = refusals.join(f.broadcast(offenders.groupBy("user").agg(harmful)), "user", "left")
    return found.withColumn("patterns", f.coalesce("patterns", f.array().cast("array<string>")))


def write_files(
    run: Run, console: Console, advised: Advised, *, enforce: bool = False, servers: Sequence[str] = ()
) -> None:
    """recommended/quotas.yaml and recommended/changes.diff."""
    tables, course = run.tables, advised.course
    config = newest(tables.events("config"))
    changes = [
        NewRate(
            row["user"],
            row["recommended_rate"],
            mode_of(row["mode"], row["current_rate"], enforce=enforce),
            row["reasons"],
            row["headroom"],
        )
        for row in advised.rows.where("action = 'set'").toLocalIterator()
    ]
    days = [
        datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()
        for at_ms in (course.begin_ms, course.split_ms, course.end_ms)
    ]
    head = [
        "Quotas recommended by `pidgate pipeline recommend`: everything in force, and new rates with their reasons.",
        f"Learnt from {days[0]} to {days[1]}, judged until {days[2]}. Rates are ids per window.",
        "Take the section `quotas` into the gateway's own file: events do not tell byte rates, what a cold start means,"
        " or how the cluster is reached. Check it with `pidgate check --config`.",
    ]
    cluster = config["cluster"] if config else ""
    text = quotas_yaml(
        config, changes, head=head, cluster=cluster, bootstrap_servers=servers or _brokers(tables)
    )
    run.write_text("recommended", "quotas.yaml", text)
    run.write_text("recommended", "changes.diff", changes_diff(config, changes))
    console.print(
        f"{len(changes)} new rates: {tables.path('recommended', 'quotas.yaml')}; what they change: changes.diff."
    )


def _brokers(tables: Tables) -> list[str]:
    """Return the brokers' addresses of the newest topology event."""
    newest_first = tables.events("topology").where("size(brokers) > 0").orderBy(f.desc("wall_time_ms"))
    told = newest_first.first()
    return [f"{one['host']}:{one['port']}" for one in told["brokers"]] if told else []


def _show(tables: Tables, console: Console, *, as_json: bool) -> None:
    found = tables.written("recommendations")
    if as_json:
        common.print_json(found)
        return
    order = f.when(f.col("action") == "set", 0).otherwise(1)
    rows = found.orderBy(order, f.desc("rogue_ids_test"), "user").limit(SHOWN).collect()
    table = Table(
        "user", "action", "now", "recommended", "rogue ids let in (judged days)", "healthy refused", "why"
    )
    for row in rows:
        let_in = f"{row['rogue_ids_admitted_test'] or 0} of {row['rogue_ids_test'] or 0}"
        refused, why = row["healthy_refused_test"] or 0, (row["reasons"] or [""])[0]
        rates = (
            "-" if rate is None else f"{rate:g}" for rate in (row["current_rate"], row["recommended_rate"])
        )
        table.add_row(row["user"], row["action"], *rates, let_in, f"{refused}", why)
    console.print(table)
    console.print(
        "Load it with `mode: observe` first, look, then `pidgate promote` user by user: enforcing is yours to type."
    )
