"""Rates to try for each user: around what its healthy producers brought in an hour, up to all there was.

In ids per window. Tried are the same few steps for everybody, so that no user's numbers are fitted too closely.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

LONGEST_WAIT_MS = 60_000
"""The gateway's own alarm: who waits longer is about to lose what it sends."""

HALVES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Of the healthy ids of the fullest hour: a bucket lets in up to twice its rate in one hour, so half may be enough."""


def needs(judged: DataFrame, window_ms: int, split_ms: int) -> DataFrame:
    """Per user: ids; and of them before `split_ms` train_ids, rogue_ids, naive (the most in one window), healthy_peak,
    healthy_p99 (of windows in which there were any). Windows are cut at the same times for all.
    """
    learnt = f.col("at_ms") < split_ms
    healthy = learnt & f.col("healthy")
    windows = judged.groupBy("user", f.floor(f.col("at_ms") / window_ms).alias("window")).agg(
        f.count("*").alias("ids"),
        f.count_if(learnt).alias("learnt"),
        f.count_if(healthy).alias("healthy"),
        f.count_if(learnt & f.col("transactional") & ~f.col("healthy")).alias("transactional"),
    )
    p99 = f.percentile_approx(f.when(f.col("healthy") > 0, f.col("healthy")), 0.99)
    return windows.groupBy("user").agg(
        f.sum("ids").alias("ids"),
        f.sum("learnt").alias("train_ids"),
        (f.sum("learnt") - f.sum("healthy")).alias("rogue_ids"),
        f.sum("transactional").alias("rogue_transactional_ids"),
        f.max("learnt").alias("naive"),
        f.max("healthy").alias("healthy_peak"),
        f.coalesce(p99, f.lit(0)).alias("healthy_p99"),
    )


def alive(refreshed: DataFrame, slice_ms: int, split_ms: int) -> DataFrame:
    """Per user, before `split_ms`: alive, the most ids that were in use beyond one slice at the same time, about.

    Whoever restarts all of its producers at once brings as many, whether or not that was seen. What harms lives for a
    moment, and is not among them.
    """
    slices = refreshed.where(f.col("at_ms") < split_ms).groupBy(
        "user", f.floor(f.col("at_ms") / slice_ms).alias("slice")
    )
    return (
        slices.agg(f.approx_count_distinct("producer_id", 0.02).alias("ids"))
        .groupBy("user")
        .agg(f.max("ids").alias("alive"))
    )


def candidates(need: DataFrame, window_ms: int, given: Sequence[float] = ()) -> DataFrame:
    """needs() with `rates`: what is tried, ascending, in ids per window. `given`: these, instead of the steps.

    What is in force (`current_rate`, null: nothing), the naive rate and `alive` are always among them; beside a rogue
    also the rates at which whoever comes back waits for about a minute, and half of that.
    """
    peak = f.greatest("healthy_peak", f.lit(1))
    steps: list[Column] = [f.lit(float(rate)) for rate in given] or [
        *(_round(peak * step) for step in HALVES),
        _round(f.greatest("healthy_p99", f.lit(1))),
        f.lit(1.0),
    ]
    in_force = f.when(f.col("current_rate") > 0, f.col("current_rate"))
    a_minute = float(max(1, -(-window_ms // LONGEST_WAIT_MS)))
    tried = f.array(
        *steps,
        f.greatest("naive", f.lit(1)).cast("double"),
        f.when(f.col("alive") > 0, _round(f.col("alive"))),
        *(f.when(f.col("rogue_ids") > 0, f.lit(times * a_minute)) for times in (1.0, 1.2, 2.0)),
        in_force,
    )
    return need.withColumn("rates", f.array_sort(f.array_distinct(f.array_compact(tried))))


def _round(rate: Column) -> Column:
    """Up to two digits, as people write rates: 7, 43, 130, 2600."""
    digit = f.pow(f.lit(10.0), f.greatest(f.floor(f.log10(rate)) - 1, f.lit(0)))
    return f.greatest(f.ceil(rate / digit) * digit, f.lit(1.0))
