"""States by broker and hour under quotas: never less than what would have been there.

A quota holds a user's *new* ids. Of the ids that a broker holds in one hour, those that lived an hour at most were all
new within (expiration + the broker's check interval + 2 hours): the bucket let in no more of them than
`Bucket.most_admitted` of that time, and the filter's false positives. So held = long-lived + least(wanted, that).
It is a bound and needs no replay: what an operator can rely on. Which single id is refused, the replay says.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.expiry import CHECK_INTERVAL_MS
from pidgate.pipeline.failover.held import HOUR_MS, UNKNOWN_TOPIC
from pidgate.pipeline.failover.placement import Bucket


def uniform_plans(users: DataFrame, rates: Mapping[str, float | None]) -> DataFrame:
    """quota, user, rate: the same rate for every user, one plan for each name; None: no limit."""
    rows = [(quota, None if rate is None else float(rate)) for quota, rate in rates.items()]
    named = users.sparkSession.createDataFrame(rows, "quota string, rate double")
    return users.select("user").crossJoin(named).select("quota", "user", "rate")


def named_plan(users: DataFrame, quota: str, rates: DataFrame, default_rate: float | None) -> DataFrame:
    """quota, user, rate: a rate of their own for some users (null: no limit), the default's for all others."""
    own = rates.select("user", "rate", f.lit(True).alias("is_named"))
    rate = f.when(f.col("is_named"), f.col("rate")).otherwise(f.lit(default_rate).cast("double"))
    return (
        users.select("user")
        .join(own, "user", "left")
        .select(f.lit(quota).alias("quota"), "user", rate.alias("rate"))
    )


def under_quotas(
    held: DataFrame, plans: DataFrame, reopening: DataFrame, bucket: Bucket, expiry_ms: int
) -> DataFrame:
    """quota, topic, hour_ms, ids, states, storm_states, allowance_states.

    reopening (user, reopens): new producers that each id in use becomes when a broker dies. storm_states: what one
    death adds so. allowance_states: what all deaths together can add before the buckets are empty (infinite where a
    user who reopens has no limit).
    """
    reopens = f.coalesce("reopens", f.lit(0.0))
    wanted, requested = f.col("user_short_ids"), f.col("user_active_ids") * f.col("reopens")
    left = f.when(f.col("reopens") > 0, f.col("most") - f.least(wanted, "most")).otherwise(0.0)
    columns = {
        "ids": f.col("long_ids") + f.col("short_ids") * f.col("kept"),
        "states": f.col("long_states") + f.col("short_states") * f.col("kept"),
        "storm_states": f.col("active_states") * f.col("reopens") * _share_of("left", requested),
        "allowance_states": f.col("left")
        * (f.col("long_states") + f.col("short_states"))
        / f.col("user_ids"),
    }
    return (
        held.join(f.broadcast(plans), "user")
        .join(f.broadcast(reopening), "user", "left")
        .withColumns({"reopens": reopens, "most": _most_admitted(bucket, expiry_ms)})
        .withColumns({"kept": _share_of("most", wanted), "left": left})
        .groupBy("quota", "topic", "hour_ms")
        .agg(*(f.sum(column).alias(name) for name, column in columns.items()))
    )


def _share_of(granted: str, requested: Column) -> Column:
    return f.when(requested > 0, f.least(f.lit(1.0), f.col(granted) / requested)).otherwise(0.0)


def _most_admitted(bucket: Bucket, expiry_ms: int) -> Column:
    """See the head of this file. A rate of 0 blocks before any bucket; a false positive passes nevertheless."""
    during_ms = expiry_ms + CHECK_INTERVAL_MS + 2 * HOUR_MS
    rate = f.col("rate")
    paid = f.when(rate == 0, 0.0).otherwise(rate * bucket.most_admitted(1, during_ms) - rate + 1)
    unpaid = f.col("user_short_ids") * bucket.false_positive_rate
    return f.when(rate.isNull(), f.lit(float("inf"))).otherwise(paid + unpaid)


def by_broker(loads: DataFrame, shares: DataFrame) -> DataFrame:
    """quota, hour_ms, broker, ids, states, storm_states, allowance_states: each topic's by the shares of its brokers.

    ids: those with at least one state there, when the partitions of a topic's ids lie as the topic's do. A topic
    without shares counts by the unknown topic's.
    """
    known = shares.select("topic", f.col("topic").alias("known_topic")).distinct()
    placed = loads.join(f.broadcast(known), "topic", "left").withColumn(
        "topic", f.coalesce("known_topic", f.lit(UNKNOWN_TOPIC))
    )
    touching = f.least(f.lit(1.0), f.col("states") / f.col("ids") * f.col("share"))
    present = f.when(f.col("ids") > 0, f.col("ids") * touching).otherwise(0.0)
    sums = ("states", "storm_states", "allowance_states")
    return (
        placed.join(f.broadcast(shares), "topic")
        .groupBy("quota", "hour_ms", "broker")
        .agg(f.sum(present).alias("ids"), *(f.sum(f.col(name) * f.col("share")).alias(name) for name in sums))
    )
