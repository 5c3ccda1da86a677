"""`pidgate pipeline recommend`: replays history at candidate rates, writes tables and the quotas file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pidgate.pipeline.commands import common
from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.errors import BadOption
from pidgate.pipeline.kept import kept
from pidgate.pipeline.newest import newest_event
from pidgate.pipeline.recommend.candidates import alive, candidates, needs
from pidgate.pipeline.recommend.evidence import Asked
from pidgate.pipeline.recommend.in_force import settings, users_in_force, with_current
from pidgate.pipeline.recommend.judged import (
    LABELS_OF_IDS,
    arrived,
    judged_by_findings,
    judged_by_labels,
    refreshed,
)
from pidgate.pipeline.recommend.quotas_file import NOT_TOLD, NewRate, changes_diff, mode_of, quotas_yaml
from pidgate.pipeline.recommend.recommended import (
    LATE_ROGUE,
    filter_accuracy,
    recommend_candidates,
    recommendations,
)
from pidgate.pipeline.recommend.trials import Course, trials
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.tables import Tables
from pidgate.quota.settings import ProducerIdSettings
from pidgate.units import about_duration, counted

DAY_MS = 86_400_000
JUDGED_SHARE = 7 / 30
JUDGED_MOST_MS = 7 * DAY_MS
"""At most the last week judges the rates; the days before it are for learning."""
SHOWN = 12
DEFAULTS = Asked()
LEAST_HISTORY = "7d"

LeastHistoryOption = Annotated[
    str, typer.Option("--least-history", help="With less history than this no rate is recommended.")
]
EnforceOption = Annotated[
    bool,
    typer.Option("--enforce", help="Write `mode: enforce` beside new rates (default: observe first)."),
]
ServersOption = Annotated[
    str,
    typer.Option("--bootstrap-servers", help="For the file's `cluster` (default: the brokers in events)."),
]


def recommend(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    candidates: Annotated[
        str,
        typer.Option(help="Rates to try for all users: 10,50,100 (default: steps around each need)."),
    ] = "",
    headroom: Annotated[
        float, typer.Option(min=1.0, help="Factor on the lowest rate that refuses no healthy id.")
    ] = DEFAULTS.headroom,
    longest_wait: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=120.0,
            help="Seconds that healthy ids may wait if a rogue cannot be held otherwise (0: none may wait).",
        ),
    ] = 0.0,
    least_history: LeastHistoryOption = LEAST_HISTORY,
    least_ids: Annotated[
        int, typer.Option(min=1, help="Users with fewer new ids get no recommendation.")
    ] = DEFAULTS.least_ids,
    enforce: EnforceOption = False,
    bootstrap_servers: ServersOption = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the recommendations as JSON lines instead.")
    ] = False,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Find each user's quota: replayed on its own history, judged on days held out from learning."""
    tried, days = rates_of(candidates), Days.parsed(since, until)
    asked = Asked(
        headroom=headroom,
        longest_wait_ms=round(longest_wait * 1000),
        least_history_ms=common.duration_ms(least_history, "--least-history"),
        least_ids=least_ids,
    )
    found, console = common.start("recommend", tables, master, memory)
    with replacing(found) as run:
        advised = write_recommendations(run, console.print, days=days, tried=tried, asked=asked)
        write_files(run, console.print, advised, enforce=enforce, servers=bootstrap_servers)
    _show(found, console, as_json=as_json)


def rates_of(text: str) -> list[float]:
    """Parse `10,50,100`. Raises BadOption."""
    try:
        rates = [float(rate) for rate in text.split(",") if rate.strip()]
    except ValueError as error:
        raise BadOption(f"--candidates takes numbers, as in 10,50,100, not {text!r}") from error
    if any(not 0.001 <= rate <= 1e9 for rate in rates):
        raise BadOption("--candidates: rates must be between 0.001 and 1,000,000,000 ids per window")
    return rates


@dataclass(frozen=True, slots=True)
class Advised:
    """Outcome of a run: the recommendations, the days of the trials, and the source of `healthy` in words."""

    course: Course
    rows: DataFrame
    healthy: str


def write_recommendations(
    run: Run,
    say: common.Say,
    *,
    days: Days = EVER,
    tried: Sequence[float] = (),
    asked: Asked = DEFAULTS,
) -> Advised:
    """Write recommendations, recommend_candidates and filter_accuracy. Raises HistoryEmpty."""
    tables = run.tables
    decisions = tables.needed_events("decision", days)
    config = newest_event(tables.events("config"))
    shape = settings(config)
    course = course_of(decisions, shape)
    asked = replace(asked, begin_ms=course.begin_ms, end_ms=course.end_ms)
    long_ms = course.end_ms - course.begin_ms
    say(
        f"{about_duration(long_ms)} of history: learnt from the first "
        f"{about_duration(course.split_ms - course.begin_ms)}, judged on the rest, then fitted on all of it."
    )
    if long_ms < asked.least_history_ms:
        say(
            f"That is too little to recommend a rate: the minimum is {about_duration(asked.least_history_ms)} "
            "(--least-history)."
        )
    judged, by = _judged(tables, arrived(decisions, shape.remember_ms))
    with kept(judged):
        need = needs(judged, shape.window_ms, course.split_ms)
        need = with_current(need, users_in_force(tables.events("config")), config)
        used = refreshed(decisions)
        living = alive(used, shape.slice_ms, course.split_ms)
        need = need.join(living, "user", "left").join(_history_of(tables, decisions, judged), "user", "left")
        need = need.fillna(0, ["train_alive", "whole_alive", "healthy_refusals"])
        with kept(candidates(need, shape.window_ms, tried)) as plan:
            say(f"Arrivals of {plan.count()} users, {by}. Every rate is tried on all of them ...")
            outcomes = run.keep("outcomes", trials(judged, used, plan, course))
            rated = run.write("recommend_candidates", recommend_candidates(outcomes))
            run.write("filter_accuracy", filter_accuracy(outcomes, shape.false_positive_rate))
            advised = run.write("recommendations", recommendations(rated, plan, asked))
    return Advised(course, advised, by)


def course_of(decisions: DataFrame, shape: ProducerIdSettings) -> Course:
    """Return the days of a history and the start of the judged ones."""
    begin_ms, last_ms = decisions.agg(f.min("wall_time_ms"), f.max("wall_time_ms")).collect()[0]
    end_ms = last_ms + 1
    judged_ms = min(JUDGED_MOST_MS, int((end_ms - begin_ms) * JUDGED_SHARE))
    return Course(shape, begin_ms, end_ms - judged_ms, end_ms)


def _judged(tables: Tables, arriving: DataFrame) -> tuple[DataFrame, str]:
    """Return the arrivals with `healthy`, and the source of that column in words."""
    if tables.exists("labels_ids"):
        labels = tables.read("labels_ids", schema=LABELS_OF_IDS)
        return judged_by_labels(arriving, labels), "healthy by the history's own labels"
    places = tables.result("offenders_places")
    if places is not None:
        return judged_by_findings(arriving, places), "healthy unless `offenders` found harm"
    return (
        arriving.withColumn("healthy", f.lit(True)),
        "all assumed healthy: run `pidgate pipeline offenders` first to hold rogues",
    )


def _history_of(tables: Tables, decisions: DataFrame, judged: DataFrame) -> DataFrame:
    """Return first_ms, healthy_refusals, `patterns` and `rogues` per user.

    The last two are the patterns and clients of harmful findings. A client refused before it had an id may
    have been healthy.
    """
    unnamed = f.expr("sum(if(decision = 'refuse' and producer_id < 0, 1, 0))")
    met = decisions.where("user != ''").groupBy("user")
    history = met.agg(f.min("wall_time_ms").alias("first_ms"), unnamed.alias("unnamed"))
    refused = judged.where("healthy").groupBy("user").agg(f.sum("refusals").alias("named"))
    both = f.col("unnamed") + f.coalesce("named", f.lit(0))
    history = history.join(refused, "user", "left").select("user", "first_ms", both.alias("healthy_refusals"))
    offenders = tables.result("offenders")
    nothing = f.array().cast("array<string>")
    if offenders is None:
        return history.withColumns({"patterns": nothing, "rogues": nothing})
    client = f.expr("'client ' || nullif(client_id, '') || coalesce(' at ' || address, '')")
    harmful = (
        offenders.where("harmful")
        .groupBy("user")
        .agg(
            f.array_sort(f.collect_set("pattern")).alias("patterns"),
            f.array_sort(f.collect_set(client)).alias("rogues"),
        )
    )
    found = history.join(f.broadcast(harmful), "user", "left")
    return found.withColumns({name: f.coalesce(name, nothing) for name in ("patterns", "rogues")})


def write_files(
    run: Run, say: common.Say, advised: Advised, *, enforce: bool = False, servers: str = ""
) -> None:
    """Write recommended/quotas.yaml and recommended/changes.diff. `servers`: as typed, comma-separated."""
    tables, course = run.tables, advised.course
    config = newest_event(tables.events("config"))
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
        f"Each rate is fitted to all days from {days[0]} to {days[2]}. How far to trust it: the same rule, given only "
        f"the days before {days[1]}, was judged on those from then on. Rates are ids per window.",
        f"Judged with ids {advised.healthy}.",
        *_verdict(advised.rows),
        f"Take the section `quotas` into the gateway's own file: events do not contain {NOT_TOLD}. "
        "Check it with `pidgate check --config`.",
    ]
    cluster = config["cluster"] if config else ""
    reached = [server.strip() for server in servers.split(",") if server.strip()] or _brokers(tables)
    text = quotas_yaml(config, changes, head=head, cluster=cluster, bootstrap_servers=reached)
    run.write_text("recommended", "quotas.yaml", text)
    run.write_text("recommended", "changes.diff", changes_diff(config, changes))
    say(f"{len(changes)} new rates: {tables.path('recommended', 'quotas.yaml')}; their diff: changes.diff.")


def _brokers(tables: Tables) -> list[str]:
    """Return the broker addresses of the newest topology event."""
    told = newest_event(tables.events("topology").where("size(brokers) > 0"))
    return [f"{one['host']}:{one['port']}" for one in told["brokers"]] if told else []


def _verdict(rows: DataFrame) -> list[str]:
    """Return the outcome of the judged days over all users, and the number of users without a fitting rate."""
    names = ("rogue_ids_test", "rogue_ids_admitted_test", "healthy_refused_test")
    sums = rows.agg(
        *(f.coalesce(f.sum(name), f.lit(0)) for name in names),
        f.count_if(f.expr(LATE_ROGUE)),
        f.count_if(f.col("action") == "no_rate"),
    )
    came, let_in, refused, late, without = sums.collect()[0]
    told = [
        f"In the judged days it holds {came - let_in:,} of {came:,} ids of rogues and makes "
        f"{counted(refused, 'healthy id')} wait."
    ]
    if late:
        told.append(
            f"{counted(late, 'user')} with a rogue came in those days only, so their rates are not judged."
        )
    if without:
        told.append(
            f"{counted(without, 'user')} with a rogue that no rate separates from the healthy: nothing is changed for "
            "them here; results/recommendations and the report have what would help."
        )
    return told


def _show(tables: Tables, console: Console, *, as_json: bool) -> None:
    found = tables.written("recommendations")
    if as_json:
        common.print_json(found)
        return
    order = f.when(f.col("action") == "set", 0).when(f.col("action") == "no_rate", 1).otherwise(2)
    rows = found.orderBy(order, f.desc("rogue_ids"), "user").limit(SHOWN).collect()
    table = Table(
        "user", "action", "now", "recommended", "rogue ids held (judged days)", "healthy refused", "why"
    )
    for row in rows:
        came, refused = row["rogue_ids_test"], row["healthy_refused_test"]
        held = f"{came - row['rogue_ids_admitted_test']:,} of {came:,}" if came else "-"
        why = " Remedies: ".join([*row["reasons"][:1], *row["remedies"][:1]])
        rates = (
            "-" if rate is None else f"{rate:g}" for rate in (row["current_rate"], row["recommended_rate"])
        )
        action = row["action"].replace("_", " ")
        table.add_row(
            escape(row["user"]), action, *rates, held, "-" if refused is None else f"{refused}", escape(why)
        )
    console.print(table)
    console.print(
        "Load it with `mode: observe` first, check the result, then `pidgate promote` user by user."
    )
