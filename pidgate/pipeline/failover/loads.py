"""States per broker and hour under quotas, as an upper bound.

A quota limits a user's *new* ids. Of the ids held by a broker in an hour, those that lived at most an hour
were all new within (expiration + the broker's check interval + 2 hours). The bucket admitted at most
`Bucket.most_admitted` of them in that time, plus the filter's false positives. So held = long-lived +
least(wanted, that). The bound needs no replay and is reliable for an operator. The replay shows the refusal
of single ids.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.expiry import CHECK_INTERVAL_MS
from pidgate.pipeline.failover.held import HOUR_MS, UNKNOWN_TOPIC
from pidgate.pipeline.failover.placement import Bucket


def uniform_plans(users: DataFrame, rates: Mapping[str, float | None]) -> DataFrame:
    """Return quota, user, rate: one plan per name with the same rate for every user; None: no limit."""
    rows = [(quota, None if rate is None else float(rate)) for quota, rate in rates.items()]
    named = users.sparkSession.createDataFrame(rows, "quota string, rate double")
    return users.select("user").crossJoin(named).select("quota", "user", "rate")


def named_plan(users: DataFrame, quota: str, rates: DataFrame, default_rate: float | None) -> DataFrame:
    """Return quota, user, rate: individual rates for some users (null: no limit), the default for the others."""
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
    """Return quota, topic, hour_ms, ids, states, storm_states, allowance_states.

    reopening (user, reopens): new producers per active id when a broker dies. storm_states: states added by
    one death. allowance_states: states added by all deaths until the buckets are empty (infinite if a
    reopening user has no limit).
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
    """Return the bound described in the module docstring.

    Rate 0 blocks without a bucket; false positives still pass.
    """
    during_ms = expiry_ms + CHECK_INTERVAL_MS + 2 * HOUR_MS
    rate = f.col("rate")
    paid = f.when(rate == 0, 0.0).otherwise(rate * bucket.most_admitted(1, during_ms) - rate + 1)
    unpaid = f.col("user_short_ids") * bucket.false_positive_rate
    return f.when(rate.isNull(), f.lit(float("inf"))).otherwise(paid + unpaid)


def by_broker(loads: DataFrame, shares: DataFrame) -> DataFrame:
    """Return quota, hour_ms, broker, ids, states, storm_states, allowance_states, by broker shares.

    ids: those with at least one state on the broker, if an id's partitions are distributed like the topic's.
    A topic without shares uses those of the unknown topic.
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
