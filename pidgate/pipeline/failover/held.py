"""States and active ids per user and hour.

A state is one (producer id, partition). A broker keeps it from the id's first batch until
producer.id.expiration.ms after its last write. Refused ids count too, as in a past without quotas. Knows
neither brokers nor quotas.

Ids used for longer than an hour are counted separately (`long_...`): they are a deployment's regular
producers, and a sensible quota would not have refused them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.expiry import CHECK_INTERVAL_MS

HOUR_MS = 3_600_000

UNKNOWN_TOPIC = ""


def lives(arrived: DataFrame, usage: DataFrame) -> DataFrame:
    """Return user, topic, producer_id, first_ms, last_ms, partitions, admitted: one row per requested id.

    From arrivals (topic, first sight) and id_usage (life, partitions). Ids never forwarded have no usage:
    they are assumed to write once, to as many partitions as the user's other ids. The topic of an id without
    a decision in the history is unknown.
    """
    used = usage.groupBy("user", "producer_id").agg(
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
        f.max("partitions").cast("double").alias("partitions"),
    )
    seen = arrived.groupBy("user", "producer_id").agg(
        f.min_by("topic", "at_ms").alias("topic"),
        f.min("at_ms").alias("at_ms"),
        f.min("first_admitted_ms").isNotNull().alias("let_in"),
    )
    typical = used.groupBy("user").agg(f.avg("partitions").alias("typical_partitions"))
    return (
        seen.join(used, ["user", "producer_id"], "full")
        .join(f.broadcast(typical), "user", "left")
        .select(
            "user",
            f.coalesce("topic", f.lit(UNKNOWN_TOPIC)).alias("topic"),
            "producer_id",
            f.least("first_ms", "at_ms").alias("first_ms"),
            f.greatest("last_ms", "at_ms").alias("last_ms"),
            f.greatest(f.coalesce("partitions", "typical_partitions"), f.lit(1.0)).alias("partitions"),
            f.coalesce("let_in", f.lit(True)).alias("admitted"),
        )
    )


def held(lived: DataFrame, expiry_ms: int) -> DataFrame:
    """Return user, topic, hour_ms, the counts below, and user_short_ids, user_active_ids, user_ids.

    Counts: long_ids, long_states, short_ids, short_states, active_ids, active_states. ..._ids and ..._states:
    held at any time of the hour; active: used in it; user_...: over all topics of the user. Ids are grouped
    by (first hour, last hour) before they are spread over hours, so that the cost grows with users and hours
    instead of ids.
    """
    gone_ms = f.col("last_ms") + f.lit(expiry_ms + CHECK_INTERVAL_MS)
    groups = (
        lived.withColumns(
            {
                "first_hour_ms": _hour(f.col("first_ms")),
                "used_hour_ms": _hour(f.col("last_ms")),
                "gone_hour_ms": _hour(gone_ms),
                "is_long": f.col("last_ms") - f.col("first_ms") > HOUR_MS,
            }
        )
        .groupBy("user", "topic", "first_hour_ms", "used_hour_ms", "gone_hour_ms", "is_long")
        .agg(f.count("*").alias("ids"), f.sum("partitions").alias("states"))
    )
    hours = f.explode(f.sequence("first_hour_ms", "gone_hour_ms", f.lit(HOUR_MS)))
    user_hour = Window.partitionBy("user", "hour_ms")
    is_used = f.col("hour_ms") <= f.col("used_hour_ms")
    return (
        groups.withColumn("hour_ms", hours)
        .groupBy("user", "topic", "hour_ms")
        .agg(
            *_sums("long", f.col("is_long")),
            *_sums("short", ~f.col("is_long")),
            *_sums("active", is_used),
        )
        .withColumns(
            {
                "user_short_ids": f.sum("short_ids").over(user_hour),
                "user_active_ids": f.sum("active_ids").over(user_hour),
                "user_ids": f.sum(f.col("long_ids") + f.col("short_ids")).over(user_hour),
            }
        )
    )


def _hour(at_ms: Column) -> Column:
    return at_ms - at_ms % HOUR_MS


def _sums(name: str, condition: Column) -> list[Column]:
    return [
        f.coalesce(f.sum(f.when(condition, f.col(what))), f.lit(0)).cast("double").alias(f"{name}_{what}")
        for what in ("ids", "states")
    ]
