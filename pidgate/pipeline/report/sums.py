"""Sums over whole result tables by Spark: a few rows each, for any number of users."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.ingest.clocks import Doubts, doubts
from pidgate.pipeline.ingest.columns import CLOCKS
from pidgate.pipeline.report.rows import Advice, Totals
from pidgate.pipeline.report.series import DAY_MS
from pidgate.pipeline.report.source import Source, collected
from pidgate.pipeline.tables import Tables

_REASONS = 50
_DIFF_LINES = 1_000


def totals(source: Source, days: Days) -> Totals | None:
    """Return the sums over all users; of some days only those that are known by day."""
    frame = source.frame("rates_users" if days == EVER else "rates_by_time")
    if frame is None:
        return None
    sums = [_sum(column) for column in ("new_ids", "refusals")]
    if days == EVER:
        ends = (f.min("first_ms").alias("first_ms"), f.max("last_ms").alias("last_ms"))
        sums += [_sum(column) for column in ("ids", "refused_ids", "gave_up")]
    else:
        frame = within(frame.where("unit = 'day'"), "start_ms", days)
        ends = (f.min("start_ms").alias("first_ms"), (f.max("start_ms") + f.lit(DAY_MS - 1)).alias("last_ms"))
    row = frame.agg(f.count_distinct("user").alias("users"), *ends, *sums).collect()[0].asDict()
    return Totals(**row) if row["users"] else None


def within(frame: DataFrame, column: str, days: Days) -> DataFrame:
    """Return the rows whose time is in these days."""
    day = f.date_format(f.timestamp_millis(column), "yyyy-MM-dd")
    return days.of(frame.withColumn("day", day)).drop("day") if days != EVER else frame


def lost(tables: Tables) -> dict[str, int] | None:
    """Return missing events by gateway; None if events were not ingested from a topic."""
    if not tables.exists("gaps"):
        return None
    gaps = tables.read("gaps", schema="gateway_id string, missing bigint")
    return _counts(gaps, "gateway_id", f.sum("missing"))


def dead_letters(tables: Tables) -> dict[str, int]:
    """Return rejected events by reason."""
    return _counts(tables.read("dead_letters", schema="reason string"), "reason", f.count("*"))


def clocks(tables: Tables) -> Doubts:
    """Return the doubts about gateways' clocks; none if events were not ingested from a topic."""
    return doubts(collected(tables.read("clocks", schema=CLOCKS)))


def advice(source: Source) -> Advice | None:
    frame, totals = source.frame("recommendations"), source.rows("recommend_totals", at_most=1)
    if frame is None or not totals:
        return None
    diff, left_out = _diff(source.tables)
    return Advice(
        by_action=_counts(frame, "action", f.count("*")),
        totals=totals[0],
        lower_bounds=frame.where("lower_bound and action != 'none'").count(),
        diff=diff,
        diff_left_out=left_out,
    )


def _diff(tables: Tables) -> tuple[list[str], int]:
    """Return the lines of recommended/changes.diff, and the number of further lines."""
    lines = (tables.text("recommended", "changes.diff") or "").splitlines()
    return lines[:_DIFF_LINES], max(0, len(lines) - _DIFF_LINES)


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
