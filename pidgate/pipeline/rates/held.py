"""States held by brokers: one per partition that an id wrote to, until it expires.

A broker keeps a producer's state for producer.id.expiration.ms after its last write and looks for expired
ones every producer.id.expiration.check.interval.ms. Time is counted in steps of that interval: an id is held
from the step of its first use to the step in which its last use expires.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.expiry import CHECK_INTERVAL_MS
from pidgate.pipeline.rates.times import HOUR_MS, floored


def id_stays(hours: DataFrame) -> DataFrame:
    """Return first_ms, last_ms, requests, partitions per (user, producer_id) and stay, from id_hours."""
    return hours.groupBy("user", "producer_id", "stay").agg(
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
        f.sum("requests").alias("requests"),
        f.max("partitions").alias("partitions"),
    )


def held_by_hour(stays: DataFrame, expiry_ms: int) -> DataFrame:
    """Return user, hour_ms, ids_held, states_held: the maxima per hour, from first to last held.

    ids_held is never too small, and too large by at most the ids that arrive in one check interval, which
    brokers do hold until they check. states_held: ids times their partitions (one if unknown), on one
    replica; a lower bound, like id_usage's partitions. An id counts per user, since users share none.
    """
    return _most_in_hours(_held_at(_changes(stays, expiry_ms)))


def _changes(stays: DataFrame, expiry_ms: int) -> DataFrame:
    """Return the changes of a user's held ids and states per step."""
    states = f.coalesce("partitions", f.lit(1).cast("bigint"))
    comes = floored("first_ms", CHECK_INTERVAL_MS)
    goes = floored(f.col("last_ms") + expiry_ms, CHECK_INTERVAL_MS) + CHECK_INTERVAL_MS
    one = f.lit(1).cast("bigint")
    changes = f.array(
        f.struct(comes.alias("step_ms"), one.alias("ids"), states.alias("states")),
        f.struct(goes.alias("step_ms"), (-one).alias("ids"), (-states).alias("states")),
    )
    return (
        stays.select("user", f.inline(changes))
        .groupBy("user", "step_ms")
        .agg(f.sum("ids").alias("ids"), f.sum("states").alias("states"))
    )


def _held_at(changes: DataFrame) -> DataFrame:
    """Return user, step_ms, ids, states: held from this step until next_ms. A few thousand rows per user."""
    steps = Window.partitionBy("user").orderBy("step_ms")
    up_to_here = steps.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return changes.select(
        "user",
        "step_ms",
        f.lead("step_ms").over(steps).alias("next_ms"),
        f.sum("ids").over(up_to_here).alias("ids"),
        f.sum("states").over(up_to_here).alias("states"),
    ).where("ids > 0")


def _most_in_hours(held: DataFrame) -> DataFrame:
    hours = f.sequence(
        floored("step_ms", HOUR_MS), floored(f.col("next_ms") - 1, HOUR_MS), f.lit(HOUR_MS).cast("bigint")
    )
    return (
        held.select("user", "ids", "states", f.explode(hours).alias("hour_ms"))
        .groupBy("user", "hour_ms")
        .agg(f.max("ids").alias("ids_held"), f.max("states").alias("states_held"))
    )
