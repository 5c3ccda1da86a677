"""States that brokers must hold: one for each partition that an id wrote to, until it has expired.

A broker keeps a producer's state for producer.id.expiration.ms after its last write and looks for expired ones
every producer.id.expiration.check.interval.ms. So time is counted in steps of that interval: an id is held from the
step of its first use up to the step in which its last use expires.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.expiry import CHECK_INTERVAL_MS
from pidgate.pipeline.rates.times import HOUR_MS, floored


def id_stays(hours: DataFrame) -> DataFrame:
    """Return one row per (user, producer_id) and stay, from id_hours: first_ms, last_ms, requests, partitions."""
    return hours.groupBy("user", "producer_id", "stay").agg(
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
        f.sum("requests").alias("requests"),
        f.max("partitions").alias("partitions"),
    )


def held_by_hour(stays: DataFrame, expiry_ms: int) -> DataFrame:
    """user, hour_ms, ids_held, states_held: the most at once in each hour, from a user's first to the last held.

    ids_held is never too small, and too large by at most the ids that come in one check interval, which brokers do
    hold until they look. states_held: ids times the partitions each wrote to (one where they are not known), on one
    replica; a lower bound, as id_usage's partitions are. (user, producer id) counts: ids are not shared by users.
    """
    return _most_in_hours(_held_at(_changes(stays, expiry_ms)))


def _changes(stays: DataFrame, expiry_ms: int) -> DataFrame:
    """Return the change of what a user holds at each step."""
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
    """user, step_ms, ids, states: what is held from this step until next_ms. A few thousand rows of a user."""
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
