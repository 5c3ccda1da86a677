"""`pidgate pipeline recommend`: replays each user's history, writes tables and the quotas file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pidgate import units
from pidgate.pipeline.commands import common
from pidgate.pipeline.commands.failover import USABLE_SHARE
from pidgate.pipeline.commands.progress import Progress
from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.errors import BadOption
from pidgate.pipeline.failover.placement import bucket_in_force
from pidgate.pipeline.newest import newest_event
from pidgate.pipeline.recommend import histories, measured
from pidgate.pipeline.recommend.chosen import Asked
from pidgate.pipeline.recommend.in_force import quotas_of, settings
from pidgate.pipeline.recommend.measured import Course
from pidgate.pipeline.recommend.quotas_file import NOT_TOLD, NewRate, changes_diff, mode_of, quotas_yaml
from pidgate.pipeline.recommend.recommended import RESULT, TOTALS, candidates, fit, recommended, totals_of
from pidgate.pipeline.recommend.sentences import overall
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.tables import Tables
from pidgate.units import about_duration

DAY_MS = 86_400_000
JUDGED_SHARE = 7 / 30
JUDGED_MOST_MS = 7 * DAY_MS
"""At most the last week judges the rates; the days before it are for learning."""
SHOWN = 12
DEFAULTS = Asked()
LEAST_HISTORY = "7d"
HEALTHY_BY = {
    histories.BY_LABELS: "by the history's own labels",
    histories.BY_FINDINGS: "unless `offenders` found harm",
    histories.ALL_HEALTHY: "all of them: run `pidgate pipeline offenders` first to tell a rogue's",
}

LeastHistoryOption = Annotated[
    str, typer.Option("--least-history", help="With less history than this no rate is recommended.")
]
EnforceOption = Annotated[
    bool,
    typer.Option("--enforce", help="Write `mode: enforce` beside new rates (default: observe first)."),
]
AfterMendingOption = Annotated[
    bool,
    typer.Option("--after-mending", help="Write the rates for mended clients, instead of caps for now."),
]
HeapOption = Annotated[
    str | None,
    typer.Option("--heap", help="Heap of one broker (6GiB), to show the share that producer states take."),
]
ServersOption = Annotated[
    str,
    typer.Option("--bootstrap-servers", help="For the file's `cluster` (default: the brokers in events)."),
]


def recommend(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    heap: HeapOption = None,
    after_mending: AfterMendingOption = False,
    candidates: Annotated[
        str, typer.Option(help="More rates to try for all users, to see what they would refuse: 10,50,100.")
    ] = "",
    headroom: Annotated[
        float, typer.Option(min=1.0, help="Factor on the least rate that refuses no id.")
    ] = DEFAULTS.headroom,
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
    """Find each user's quota, with its price: a cap for now, and a rate for after mending."""
    tried, days, heap_bytes = rates_of(candidates), Days.parsed(since, until), heap_of(heap)
    asked = Asked(
        headroom=headroom,
        least_history_ms=common.duration_ms(least_history, "--least-history"),
        least_ids=least_ids,
        after_mending=after_mending,
    )
    found, console = common.start("recommend", tables, master, memory)
    progress = Progress(console, ["recommend"])
    with progress.of("recommend"), replacing(found) as run:
        advised = write_recommendations(
            run, progress.say, days=days, tried=tried, asked=asked, heap_bytes=heap_bytes
        )
        write_files(run, progress.say, advised, enforce=enforce, servers=bootstrap_servers)
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


def heap_of(text: str | None) -> int | None:
    """Parse a heap such as 6GiB. Raises BadOption, also if no state fits it."""
    try:
        heap_bytes = None if text is None else units.size_bytes(text)
    except ValueError as error:
        raise BadOption(f"--heap: {error}") from error
    room = fit(heap_bytes, USABLE_SHARE)
    if room is not None and room <= 0:
        raise BadOption(f"--heap {text}: a broker with so little heap has no room for producer states.")
    return heap_bytes


@dataclass(frozen=True, slots=True)
class Advised:
    """Outcome of a run: the recommendations, and the row of recommend_totals."""

    rows: DataFrame
    totals: Mapping[str, Any]


def write_recommendations(
    run: Run,
    say: common.Say,
    *,
    days: Days = EVER,
    tried: Sequence[float] = (),
    asked: Asked = DEFAULTS,
    heap_bytes: int | None = None,
) -> Advised:
    """Write recommendations, recommend_candidates and recommend_totals. Raises HistoryEmpty."""
    tables = run.tables
    decisions = tables.needed_events("decision", days)
    config = newest_event(tables.events("config"))
    shape, quota_of, bucket = settings(config), quotas_of(config), bucket_in_force(tables.events("config"))
    expiry_ms = histories.expiry_ms(tables)
    usages = days.of(tables.events("id_usage"))
    seen = run.keep("seen", histories.seen(decisions, usages))
    first_ms, last_ms, data_days = histories.ends_and_days(seen)
    judged_ms = min(JUDGED_MOST_MS, int((last_ms + 1 - first_ms) * JUDGED_SHARE))
    course = Course(
        shape, first_ms, last_ms + 1 - judged_ms, last_ms + 1, headroom=asked.headroom, given=tuple(tried)
    )
    rows, healthy_by = histories.of_users(tables, decisions, usages, shape.remember_ms)
    begun: dict[str, Any] = {
        "begin_ms": course.begin_ms,
        "split_ms": course.split_ms,
        "end_ms": course.end_ms,
        # Days without any event are a gap, and no evidence of rest.
        "history_ms": min(course.end_ms - course.begin_ms, data_days * DAY_MS),
        "history_days": data_days,
        "healthy_by": healthy_by,
        "headroom": asked.headroom,
        "least_history_ms": asked.least_history_ms,
        "least_days": asked.least_days,
        "least_ids": asked.least_ids,
        "heap_bytes": heap_bytes,
        "states_that_fit": fit(heap_bytes, USABLE_SHARE),
        "broker_share": histories.share_of_a_broker(tables),
    }
    say(
        f"{about_duration(begun['history_ms'])} of history with data, the last "
        f"{about_duration(course.end_ms - course.split_ms)} kept back to judge. Healthy are ids "
        f"{HEALTHY_BY[healthy_by]}."
    )
    by_user = rows.groupBy("user").applyInArrow(
        measured.measured(course, quota_of), from_arrow_schema(measured.RESULT)
    )
    measures = run.keep("measures", by_user)
    run.write("recommend_candidates", candidates(measures))
    told = measures.drop("tried").join(histories.stories(tables, seen), "user")
    advise = recommended(asked, quota_of, bucket, expiry_ms, begun)
    advised = run.write("recommendations", told.mapInArrow(advise, from_arrow_schema(RESULT)))
    totals = totals_of(advised, begun, bucket, expiry_ms)
    run.write("recommend_totals", tables.spark.createDataFrame([totals], TOTALS))
    for sentence in overall(totals):
        say(sentence)
    return Advised(advised, totals)


def write_files(
    run: Run, say: common.Say, advised: Advised, *, enforce: bool = False, servers: str = ""
) -> None:
    """Write recommended/quotas.yaml and recommended/changes.diff. `servers`: as typed, comma-separated."""
    tables, totals = run.tables, advised.totals
    config = newest_event(tables.events("config"))
    changes = [
        NewRate(
            row["user"],
            row["recommended_rate"],
            mode_of(row["mode"], row["current_rate"], enforce=enforce),
            row["reasons"],
        )
        for row in advised.rows.where("action = 'set'").toLocalIterator()
    ]
    first, split, last = (
        datetime.fromtimestamp(totals[name] / 1000, UTC).date().isoformat()
        for name in ("begin_ms", "split_ms", "end_ms")
    )
    head = [
        "Quotas recommended by `pidgate pipeline recommend`: everything in force, and new rates with their reasons.",
        f"Rates are ids per window, fitted to all days from {first} to {last}. The same rule, given only the days "
        f"before {split}, was judged on those from then on.",
        f"Healthy are ids {HEALTHY_BY[totals['healthy_by']]}.",
        *(f"{sentence[0].upper()}{sentence[1:]}." for sentence in overall(totals)),
        f"Take the section `quotas` into the gateway's own file: events do not contain {NOT_TOLD}. "
        "Check it with `pidgate check --config`.",
    ]
    cluster = config["cluster"] if config else ""
    reached = [server.strip() for server in servers.split(",") if server.strip()] or _brokers(tables)
    default = totals["default_rate"]
    text = quotas_yaml(
        config, changes, head=head, cluster=cluster, bootstrap_servers=reached, default_rate=default
    )
    run.write_text("recommended", "quotas.yaml", text)
    run.write_text("recommended", "changes.diff", changes_diff(config, changes, default))
    say(
        f"{units.counted(len(changes), 'new rate')}: {tables.path('recommended', 'quotas.yaml')}, and changes.diff."
    )


def _brokers(tables: Tables) -> list[str]:
    """Return the broker addresses of the newest topology event."""
    told = newest_event(tables.events("topology").where("size(brokers) > 0"))
    return [f"{one['host']}:{one['port']}" for one in told["brokers"]] if told else []


def _show(tables: Tables, console: Console, *, as_json: bool) -> None:
    found = tables.written("recommendations")
    if as_json:
        common.print_json(found)
        return
    order = f.when(f.col("action") == "set", 0).when(f.col("action") == "keep", 1).otherwise(2)
    rows = found.orderBy(f.desc("rogue_ids"), order, "user").limit(SHOWN).collect()
    table = Table("user", "action", "now", "cap for now", "after mending", "why")
    for row in rows:
        rates = (
            "-" if row[name] is None or row["action"] == "none" else units.number(row[name])
            for name in ("current_rate", "cap_rate", "mended_rate")
        )
        table.add_row(Text(row["user"]), row["action"], *rates, Text("; ".join(row["reasons"][:4])))
    console.print(table)
    console.print(
        "Load it with `mode: observe` first, check the result, then `pidgate promote` user by user.",
        soft_wrap=True,
    )
