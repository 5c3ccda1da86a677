"""Counts over time in equal steps: at most some hundred numbers per line, for any history length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from pidgate.pipeline.days import Days
from pidgate.pipeline.report.rows import Blocks, Heaps, Held, Series, Study, Times, Totals, typed
from pidgate.pipeline.report.rows import Row as TableRow
from pidgate.pipeline.report.series import HOUR_MS, Span, running, span_between
from pidgate.pipeline.report.source import Source, collected
from pidgate.pipeline.report.sums import within

GREATEST = 6
"""Users with their own line in charts of all users; more colours are hard to tell apart."""
_BUMPS = 10
_STUDIES = 40


def times(
    source: Source, totals: Totals | None, pages: Sequence[str], window_ms: int, days: Days
) -> Times | None:
    """Return new ids and refusals of all users, and the windowed new ids of each user with a page."""
    frame = source.frame("rates_by_time")
    if frame is None or totals is None:
        return None
    frame = within(frame, "start_ms", days)
    span = span_between(totals.first_ms, totals.last_ms)
    mine = frame.where(f.col("unit") == span.unit)
    by_user = _greatest_first(mine, span, "start_ms", f.sum("new_ids"))
    refusals = mine.groupBy(_step(span, "start_ms")).agg(f.sum("refusals").alias("n")).collect()
    return Times(
        span=span,
        by_user=by_user,
        refusals=Series("refusals", span.dense({row["step"]: row["n"] for row in refusals})),
        within_window=_within_window(frame, span, pages, window_ms),
        is_running=window_ms % span.step_ms == 0,
    )


def _within_window(
    frame: DataFrame, span: Span, users: Sequence[str], window_ms: int
) -> Mapping[str | None, Series]:
    """Return per step the new ids of the window ending with it; above an hour, of its busiest hour."""
    # Only steps that divide the window add up to it.
    runs = window_ms % span.step_ms == 0
    unit = span.unit if runs else min(span.unit, "hour", key=("minute", "hour", "day").index)
    mine = frame.where((f.col("unit") == unit) & f.col("user").isin(list(users)))
    rows = mine.groupBy("user", _step(span, "start_ms")).agg(f.max("new_ids").alias("n")).collect()
    found = _dense(span, rows, "user")
    if not runs:
        return found
    steps = window_ms // span.step_ms
    return {user: Series(user, running(line.values, steps)) for user, line in found.items()}


def held(source: Source, days: Days) -> Held | None:
    """Return ids and states held over all users; for steps above an hour their fullest hour."""
    frame = source.frame("held_by_hour")
    if frame is None:
        return None
    frame = within(frame, "hour_ms", days)
    by_hour = frame.groupBy("hour_ms").agg(
        f.sum("ids_held").alias("ids_held"), f.sum("states_held").alias("states_held")
    )
    first_ms, last_ms, most_ids, most_states, most_at_ms = by_hour.agg(
        f.min("hour_ms"),
        f.max("hour_ms"),
        f.max("ids_held"),
        f.max("states_held"),
        f.max_by("hour_ms", f.struct("ids_held", -f.col("hour_ms"))),
    ).collect()[0]
    if first_ms is None:
        return None
    span = span_between(first_ms, last_ms, finest_ms=HOUR_MS)
    by_user = _greatest_first(frame, span, "hour_ms", f.sum("ids_held") / (span.step_ms // HOUR_MS))
    return Held(span, by_user, most_ids, most_states, most_at_ms)


def blocks(source: Source) -> Blocks | None:
    frame = source.frame("ids_by_hour")
    every = source.frame("ids_blocks")
    if frame is None or every is None:
        return None
    number, ids_seen = every.agg(f.count("*"), f.sum("ids_seen")).collect()[0]
    ends = (f.min("hour_ms"), f.max("hour_ms"), f.sum("ids_in_blocks"))
    first_ms, last_ms, in_blocks = frame.agg(*ends).collect()[0]
    if first_ms is None:
        return None
    span = span_between(first_ms, last_ms, finest_ms=HOUR_MS)
    by_step = frame.groupBy(f.col("node_id").cast("string").alias("name"), _step(span, "hour_ms"))
    lines = _by_broker(span, by_step.agg(f.sum("blocks").alias("n")).collect())
    together = [sum(values) for values in zip(*(line.values for line in lines), strict=True)]
    busiest = max(range(span.steps), key=together.__getitem__)
    bumped, exhausted, most = _epochs(source)
    return Blocks(
        blocks=number,
        ids_seen=ids_seen or 0,
        span=span,
        by_broker=[Series(f"broker {one.name}" if one.name else "unknown", one.values) for one in lines],
        in_blocks=in_blocks or 0,
        busiest_ms=span.start_ms + busiest * span.step_ms,
        busiest_blocks=int(together[busiest]),
        bumped=bumped,
        exhausted=exhausted,
        most_bumps=most,
    )


def _epochs(source: Source) -> tuple[int, int, list[TableRow]]:
    frame = source.frame("ids_epochs")
    if frame is None:
        return 0, 0, []
    counts = frame.agg(f.count_if(f.col("bumps") > 0), f.count_if("exhausted")).collect()[0]
    most = frame.where("bumps > 0 or exhausted").orderBy(f.desc("bumps"), "producer_id").limit(_BUMPS)
    return counts[0], counts[1], collected(most)


def heaps(source: Source) -> list[Heaps] | None:
    found = source.rows("failover_summary", at_most=_STUDIES)
    frame = source.frame("failover_kafka")
    if frame is None or found is None:
        return None
    first_ms, last_ms = frame.agg(f.min("hour_ms"), f.max("hour_ms")).collect()[0]
    if first_ms is None:
        return []
    span = span_between(first_ms, last_ms, finest_ms=HOUR_MS)
    broker = f.col("broker").cast("string").alias("name")
    by_step = frame.groupBy("quota", "scenario", broker, _step(span, "hour_ms"))
    died_ms = f.min(f.expr("if(dead, hour_ms, null)")).alias("died_ms")
    rows = by_step.agg(f.max("heap_bytes").alias("n"), died_ms).collect()
    of_study: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        of_study[row["quota"], row["scenario"]].append(row)
    return [
        _heaps_of(study, span, of_study[study.quota, study.scenario])
        for study in sorted((typed(Study, one) for one in found), key=_no_quota_first)
    ]


def _no_quota_first(study: Study) -> tuple[int, str, bool, str]:
    known = ("none", "in force", "recommended")
    place = known.index(study.quota) if study.quota in known else len(known)
    return (place, study.quota, study.scenario != "as it was", study.scenario)


def _heaps_of(study: Study, span: Span, rows: Sequence[Row]) -> Heaps:
    died: dict[int, int] = {}
    for row in rows:
        broker = int(row["name"])
        if row["died_ms"] is not None and broker in study.brokers_dead:
            died[broker] = min(row["died_ms"], died.get(broker, row["died_ms"]))
    return Heaps(study=study, span=span, by_broker=_by_broker(span, rows), died=died)


# Steps


def _step(span: Span, column: str) -> Column:
    """Return the start of a time's step in `span`. Steps of several days count from the span's start."""
    since = f.col(column) - f.lit(span.start_ms)
    return (f.col(column) - f.pmod(since, f.lit(span.step_ms))).alias("step")


def _greatest_first(frame: DataFrame, span: Span, at: str, amount: Column) -> list[Series]:
    """Return a line for each of the largest users, and one without a name for the rest."""
    totals = frame.groupBy("user").agg(amount.alias("n"))
    greatest = [row["user"] for row in totals.orderBy(f.desc("n"), "user").limit(GREATEST).collect()]
    name = f.when(f.col("user").isin(greatest), f.col("user")).alias("name")
    rows = frame.groupBy(name, _step(span, at)).agg(amount.alias("n")).collect()
    lines = _dense(span, rows, "name")
    others = lines.pop(None, None)
    return [lines[user] for user in greatest if user in lines] + ([others] if others else [])


def _dense(span: Span, rows: Iterable[Row], name: str) -> dict[str | None, Series]:
    counts: dict[str | None, dict[int, float]] = defaultdict(dict)
    for row in rows:
        counts[row[name]][row["step"]] = row["n"]
    return {one: Series(one, span.dense(values)) for one, values in counts.items()}


def _by_broker(span: Span, rows: Iterable[Row]) -> list[Series]:
    """Return a line per broker in id order; the unknown broker (None) comes first."""
    lines = _dense(span, rows, "name")
    return [lines[name] for name in sorted(lines, key=lambda name: -1 if name is None else int(name))]
