"""Sums over whole result tables, made by Spark: a few rows each, however many users there are."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

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
    """Return events that never came, by gateway; None where events were not taken from a topic."""
    gaps = _raw(tables, "gaps", "gateway_id string, missing bigint")
    return None if gaps is None else _counts(gaps, "gateway_id", f.sum("missing"))


def dead_letters(tables: Tables) -> dict[str, int]:
    """Return events that could not be taken, by reason."""
    dead = _raw(tables, "dead_letters", "reason string")
    return {} if dead is None else _counts(dead, "reason")


def _raw(tables: Tables, name: str, columns: str) -> DataFrame | None:
    """These columns of a table; an empty folder is an empty table."""
    if not tables.exists(name):
        return None
    return tables.spark.read.schema(columns).parquet(tables.path(name))


def advice(source: Source) -> Advice | None:
    frame = source.frame("recommendations")
    if frame is None:
        return None
    summed = frame.agg(
        *(
            _sum(column)
            for column in (
                "healthy_refused_test",
                "rogue_ids_admitted_test",
                "rogue_ids_test",
                "naive_rogue_ids_admitted_test",
                "naive_healthy_refused_test",
            )
        ),
        f.count_if("censored").alias("censored"),
    ).collect()[0]
    diff, left_out = _diff(source.tables)
    return Advice(by_action=_counts(frame, "action"), diff=diff, diff_left_out=left_out, **summed.asDict())


def _diff(tables: Tables) -> tuple[list[str], int]:
    """recommended/changes.diff, line by line, and how many lines more it has."""
    if not tables.exists("recommended", "changes.diff"):
        return [], 0
    # As a whole: a text file read by lines has no order in Spark.
    text = tables.spark.read.text(tables.path("recommended", "changes.diff"), wholetext=True).first()
    lines = text["value"].splitlines() if text else []
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


def _counts(frame: DataFrame, column: str, amount: Column | None = None) -> dict[str, int]:
    """The greatest first; what is beyond them is summed up as "other"."""
    counted = frame.groupBy(f.coalesce(f.col(column), f.lit("")).alias("name")).agg(
        (f.count("*") if amount is None else amount).cast("long").alias("amount")
    )
    rows = counted.orderBy(f.desc("amount"), "name").limit(_REASONS + 1).collect()
    counts = {row["name"]: int(row["amount"]) for row in rows[:_REASONS]}
    if len(rows) > _REASONS:
        everything = counted.agg(f.sum("amount")).collect()[0][0]
        counts["other"] = int(everything) - sum(counts.values())
    return counts
