"""One row per user with all figures about its ids."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.rates.by_time import COUNTS, summed
from pidgate.pipeline.rates.times import DAY_MS, HOUR_MS, UNITS_MS, floored

_PERCENTILES = (50, 95, 99)
_SUMS = ("ids", "ids_hll", "requests", *COUNTS, "gave_up", "ids_held", "states_held")
_PEAKS = tuple(f"peak_new_ids_per_{unit}" for unit in UNITS_MS)
COLUMNS = (
    "user",
    "first_ms",
    "last_ms",
    "ids",
    "ids_hll",
    "ids_hll_error",
    "new_ids",
    *_PEAKS,
    *(f"new_ids_per_hour_p{percent}" for percent in _PERCENTILES),
    "life_ms_p50",
    "life_ms_p95",
    "requests",
    "requests_per_id",
    "partitions_per_id",
    "refusals",
    "refused_ids",
    "waited_ms_p50",
    "waited_ms_p95",
    "gave_up",
    "ids_held",
    "states_held",
)


def rates_users(
    stays: DataFrame, by_hour: DataFrame, held: DataFrame, sketches: DataFrame, outcomes: DataFrame
) -> DataFrame:
    """Return rates_users, from id_stays, by_hour, held_by_hour, daily_sketches and refusal_outcome events.

    Percentiles of new ids per hour include every hour from the user's first to its last, empty ones as 0.
    Life is from an id's first to its last use. ids_hll_error is the estimate's error against the exact count.
    """
    parts = [
        _of_ids(stays),
        _of_arrivals(by_hour),
        _of_held(held),
        estimated_ids(sketches),
        waiting(outcomes),
    ]
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    # Each part has at most one row per user and its own columns, so max selects the non-null value.
    known = rows.groupBy("user").agg(*(f.max(name).alias(name) for name in rows.columns if name != "user"))
    return _completed(known).select(*COLUMNS)


def _of_ids(stays: DataFrame) -> DataFrame:
    ids = stays.groupBy("user", "producer_id").agg(
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
        f.sum("requests").alias("requests"),
        f.max("partitions").alias("partitions"),
    )
    life = f.percentile_approx(f.col("last_ms") - f.col("first_ms"), [0.5, 0.95], ACCURACY)
    return ids.groupBy("user").agg(
        f.min("first_ms").alias("first_used_ms"),
        f.max("last_ms").alias("last_used_ms"),
        f.count("*").alias("ids"),
        f.sum("requests").alias("requests"),
        f.avg("partitions").alias("partitions_per_id"),
        f.get(life, f.lit(0)).alias("life_ms_p50"),
        f.get(life, f.lit(1)).alias("life_ms_p95"),
    )


def _of_arrivals(by_hour: DataFrame) -> DataFrame:
    """Return sums and peaks, each unit from the next smaller one; new_ids_in_hours: sorted non-zero hours."""
    some = f.when(f.col("new_ids") > 0, f.col("new_ids"))
    per_day = by_hour.groupBy("user", floored("hour_ms", DAY_MS)).agg(
        *summed(),
        f.max(f.array_max("minutes.new_ids")).alias("in_minute"),
        f.max("new_ids").alias("in_hour"),
        f.collect_list(some).alias("in_hours"),
    )
    return per_day.groupBy("user").agg(
        *summed(),
        f.max("in_minute").alias("peak_new_ids_per_minute"),
        f.max("in_hour").alias("peak_new_ids_per_hour"),
        f.max("new_ids").alias("peak_new_ids_per_day"),
        f.sort_array(f.flatten(f.collect_list("in_hours"))).alias("new_ids_in_hours"),
    ).withColumnsRenamed({"first_ms": "first_decided_ms", "last_ms": "last_decided_ms"})  # fmt: skip


def _of_held(held: DataFrame) -> DataFrame:
    return held.groupBy("user").agg(
        f.max("ids_held").alias("ids_held"), f.max("states_held").alias("states_held")
    )


def _completed(counted: DataFrame) -> DataFrame:
    """Derive figures from the parts; missing counts are 0, other missing figures null."""
    zero = f.lit(0).cast("bigint")
    known = counted.withColumns(
        {name: f.coalesce(name, zero) for name in (*_SUMS, *_PEAKS)}
        | {
            "first_ms": f.least("first_used_ms", "first_decided_ms"),
            "last_ms": f.greatest("last_used_ms", "last_decided_ms"),
        }
    )
    some_ids = f.nullif("ids", zero)
    return known.withColumns(
        {
            "requests_per_id": f.col("requests") / some_ids,
            "ids_hll_error": f.abs(f.col("ids_hll") - f.col("ids")) / some_ids,
        }
        | {f"new_ids_per_hour_p{percent}": _per_hour(percent / 100) for percent in _PERCENTILES}
    )


def _per_hour(share: float) -> Column:
    """Return the percentile of new ids per hour, interpolated linearly like numpy's."""
    hours = (floored("last_ms", HOUR_MS) - floored("first_ms", HOUR_MS)) / HOUR_MS + 1
    rank = (hours - 1) * share
    below, above = _in_hour(hours, f.floor(rank)), _in_hour(hours, f.ceil(rank))
    return below + (above - below) * (rank - f.floor(rank))


def _in_hour(hours: Column, rank: Column) -> Column:
    """Return the new ids of the hour at that rank (0: the fewest); unlisted hours come first, with 0."""
    listed = f.coalesce("new_ids_in_hours", f.array().cast("array<bigint>"))
    place = (rank - (hours - f.size(listed))).cast("int")
    return f.when(place < 0, f.lit(0.0)).otherwise(f.get(listed, place).cast("double"))


ACCURACY = 10_000
"""Accuracy of percentiles over many values: the relative rank error is 1 / ACCURACY."""


def waiting(outcomes: DataFrame) -> DataFrame:
    """Return user, waited_ms_p50, waited_ms_p95, gave_up, from refusal_outcome events.

    Waits are of ids admitted later.
    """
    waited = f.when(f.col("outcome") == "admitted", f.col("waited_ms"))
    quantiles = f.percentile_approx(waited, [0.5, 0.95], ACCURACY)
    summed = outcomes.groupBy("user").agg(
        quantiles.alias("quantiles"), f.count_if(f.col("outcome") == "gave_up").alias("gave_up")
    )
    return summed.select(
        "user",
        f.get("quantiles", f.lit(0)).alias("waited_ms_p50"),
        f.get("quantiles", f.lit(1)).alias("waited_ms_p95"),
        "gave_up",
    )


LG_REGISTERS = 12
"""Size of a HyperLogLog sketch (Apache DataSketches, as in Spark): 2^12 registers.

The standard error of a united sketch is 1.04 / sqrt(4096) = 1.6 %. 99.7 % of estimates lie within three of
them (4.9 %), and estimates of a few hundred ids are nearly exact.
"""


def daily_sketches(hours: DataFrame) -> DataFrame:
    """Return user, day_ms, ids_sketch (binary), from id_hours. Daily sketches can be united over any days."""
    return hours.groupBy("user", floored("hour_ms", DAY_MS).alias("day_ms")).agg(
        f.hll_sketch_agg("producer_id", LG_REGISTERS).alias("ids_sketch")
    )


def estimated_ids(sketches: DataFrame) -> DataFrame:
    """Return user, ids_hll: distinct ids over all these days."""
    united = f.hll_sketch_estimate(f.hll_union_agg("ids_sketch"))
    return sketches.groupBy("user").agg(united.alias("ids_hll"))
