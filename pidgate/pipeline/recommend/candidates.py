"""Rates to try for each user: from fractions of its healthy hourly arrivals up to all arrivals.

In ids per window. All users get the same few steps, which avoids overfitting.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.recommend.evidence import LONGEST_WAIT_MS

HALVES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Multiples of the healthy ids in the fullest hour.

A bucket admits up to twice its rate in one hour, so half may be enough.
"""

DAYS = ("train", "whole")
"""Days of a need: those before the judged ones, and all. The columns of each begin with its word."""


def needs(judged: DataFrame, window_ms: int, split_ms: int) -> DataFrame:
    """Return ids per user, and for the train_... and whole_... days the columns below.

    train: days before `split_ms`; whole: all. Columns: ids, rogue_ids, rogue_transactional_ids, naive (the
    maximum in one window), healthy_peak, healthy_p99 (of non-empty windows). Windows are aligned for all
    users.
    """
    of_days = {"train": f.col("at_ms") < split_ms, "whole": f.lit(True)}
    counted: list[Column] = []
    summed: list[Column] = []
    for days, are_of in of_days.items():
        came, healthy, transactional = (f"{days}_{what}" for what in ("came", "healthy", "transactional"))
        counted += [
            f.count_if(are_of).alias(came),
            f.count_if(are_of & f.col("healthy")).alias(healthy),
            f.count_if(are_of & f.col("transactional") & ~f.col("healthy")).alias(transactional),
        ]
        some = f.when(f.col(healthy) > 0, f.col(healthy))
        summed += [
            f.sum(came).alias(f"{days}_ids"),
            (f.sum(came) - f.sum(healthy)).alias(f"{days}_rogue_ids"),
            f.sum(transactional).alias(f"{days}_rogue_transactional_ids"),
            f.max(came).alias(f"{days}_naive"),
            f.max(healthy).alias(f"{days}_healthy_peak"),
            f.coalesce(f.percentile_approx(some, 0.99), f.lit(0)).alias(f"{days}_healthy_p99"),
        ]
    windows = judged.groupBy("user", f.floor(f.col("at_ms") / window_ms).alias("window")).agg(*counted)
    return windows.groupBy("user").agg(f.sum("whole_came").alias("ids"), *summed)


def alive(refreshed: DataFrame, slice_ms: int, split_ms: int) -> DataFrame:
    """Return train_alive and whole_alive per user: about the most ids in use in parallel beyond one slice.

    A restart of all producers brings as many, whether or not one was observed. Harmful ids are short-lived
    and not included.
    """
    learnt = f.when(f.col("at_ms") < split_ms, f.col("producer_id"))
    slices = refreshed.groupBy("user", f.floor(f.col("at_ms") / slice_ms).alias("slice")).agg(
        f.approx_count_distinct(learnt, 0.02).alias("train"),
        f.approx_count_distinct("producer_id", 0.02).alias("whole"),
    )
    return slices.groupBy("user").agg(*(f.max(days).alias(f"{days}_alive") for days in DAYS))


def candidates(need: DataFrame, window_ms: int, given: Sequence[float] = ()) -> DataFrame:
    """Return needs() with `rates` to try, ascending, in ids per window. `given` replaces the steps.

    Always included are the rate in force (`current_rate`, null: none), the naive rate and `alive`. With a
    rogue, also the rates at which a returning client waits for about a minute, and half of them.
    """
    in_force = f.when(f.col("current_rate") > 0, f.col("current_rate"))
    tried: list[Column] = [f.lit(float(rate)) for rate in given] or [f.lit(1.0)]
    for days in DAYS:
        peak = f.greatest(f"{days}_healthy_peak", f.lit(1))
        if not given:
            tried += [
                *(_round(peak * step) for step in HALVES),
                _round(f.greatest(f"{days}_healthy_p99", f.lit(1))),
            ]
        tried += [
            f.greatest(f"{days}_naive", f.lit(1)).cast("double"),
            f.when(f.col(f"{days}_alive") > 0, _round(f.col(f"{days}_alive"))),
        ]
    a_minute = float(max(1, -(-window_ms // LONGEST_WAIT_MS)))
    slow = (f.when(f.col("whole_rogue_ids") > 0, f.lit(times * a_minute)) for times in (1.0, 1.2, 2.0))
    every = f.array(*tried, *slow, in_force)
    return need.withColumn("rates", f.array_sort(f.array_distinct(f.array_compact(every))))


def _round(rate: Column) -> Column:
    """Round up to two digits, as in handwritten rates: 7, 43, 130, 2600."""
    digit = f.pow(f.lit(10.0), f.greatest(f.floor(f.log10(rate)) - 1, f.lit(0)))
    return f.greatest(f.ceil(rate / digit) * digit, f.lit(1.0))
