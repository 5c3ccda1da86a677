"""Sums over whole result tables by Spark: a few rows each, for any number of users."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.recommend.recommended import LATE_ROGUE
from pidgate.pipeline.report.rows import Advice, FilterAccuracy, Filters, Totals
from pidgate.pipeline.report.source import Source, collected, columns_of
from pidgate.pipeline.tables import Tables

_WORST_FILTERS = 15
_REASONS = 50
_DIFF_LINES = 1_000


def totals(source: Source) -> Totals | None:
    frame = source.frame("rates_users")
    if frame is None:
        return None
    summed = frame.agg(
        f.count("*").alias("users"),
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
        *(_sum(column) for column in ("ids", "new_ids", "refusals", "refused_ids", "gave_up")),
    )
    found = collected(summed, Totals)[0]
    return found if found.users else None


def lost(tables: Tables) -> dict[str, int] | None:
    """Return missing events by gateway; None if events were not ingested from a topic."""
    if not tables.exists("gaps"):
        return None
    gaps = tables.read("gaps", schema="gateway_id string, missing bigint")
    return _counts(gaps, "gateway_id", f.sum("missing"))


def dead_letters(tables: Tables) -> dict[str, int]:
    """Return rejected events by reason."""
    return _counts(tables.read("dead_letters", schema="reason string"), "reason", f.count("*"))


def advice(source: Source) -> Advice | None:
    frame = source.frame("recommendations")
    if frame is None:
        return None
    summed = frame.agg(
        _sum("healthy_refused_test"),
        _sum("rogue_ids_admitted_test"),
        _sum("rogue_ids_test"),
        _sum("naive_rogue_ids_admitted_test"),
        _sum("naive_healthy_refused_test"),
        f.count_if(f.expr(LATE_ROGUE)).alias("late_rogues"),
        f.count_if("censored").alias("censored"),
    ).collect()[0]
    by_action = _counts(frame, "action", f.count("*"))
    diff, left_out = _diff(source.tables)
    return Advice(by_action=by_action, diff=diff, diff_left_out=left_out, **summed.asDict())


def _diff(tables: Tables) -> tuple[list[str], int]:
    """Return the lines of recommended/changes.diff, and the number of further lines."""
    lines = (tables.text("recommended", "changes.diff") or "").splitlines()
    return lines[:_DIFF_LINES], max(0, len(lines) - _DIFF_LINES)


def filters(source: Source) -> Filters | None:
    frame = source.frame("filter_accuracy", *columns_of(FilterAccuracy))
    if frame is None:
        return None
    summed = frame.agg(
        f.count("*").alias("users"),
        _sum("ids"),
        _sum("false_positives"),
        f.coalesce(f.sum(f.col("ids") * f.col("expected_rate")), f.lit(0.0)).alias("expected"),
    ).collect()[0]
    worst = frame.orderBy(f.desc("false_positives"), f.desc("ids"), "user").limit(_WORST_FILTERS)
    return Filters(**summed.asDict(), worst=collected(worst, FilterAccuracy))


def _sum(column: str) -> Column:
    return f.coalesce(f.sum(column), f.lit(0)).alias(column)


def _counts(frame: DataFrame, column: str, amount: Column) -> dict[str, int]:
    """Return the largest counts first; the rest is summed up as "other"."""
    name = f.coalesce(f.col(column), f.lit("")).alias("name")
    counted = frame.groupBy(name).agg(amount.cast("long").alias("amount"))
    rows = counted.orderBy(f.desc("amount"), "name").limit(_REASONS + 1).collect()
    counts = {row["name"]: int(row["amount"]) for row in rows[:_REASONS]}
    if len(rows) > _REASONS:
        everything = counted.agg(f.sum("amount")).collect()[0][0]
        counts["other"] = int(everything) - sum(counts.values())
    return counts
