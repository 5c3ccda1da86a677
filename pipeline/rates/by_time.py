"""New ids, refused ids and refusals minute by minute; ids in use besides, of each user per minute, hour and day."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.rates.times import DAY_MS, HOUR_MS, MINUTE_MS, floored

_MINUTES = 60
COUNTS = ("new_ids", "refused_ids", "refusals")


def arriving(arrived: DataFrame, decisions: DataFrame) -> DataFrame:
    """One row per (user, client_id, minute_ms) in which there was any of COUNTS; first_ms, last_ms: in that minute.

    A new id counts when it was admitted first, a refused id when it was first seen. Refusals that the gateway left
    out of its events (`refusals: sampled`) count with the next one of the same user that was written.
    """
    came_ms = f.coalesce("first_admitted_ms", "at_ms")
    let_in = f.col("first_admitted_ms").isNotNull().cast("bigint")
    came = _counted(arrived, came_ms, new_ids=let_in, refused_ids=1 - let_in, refusals=f.lit(0))
    refused = _counted(
        decisions.where("decision = 'refuse'"),
        f.col("wall_time_ms"),
        new_ids=f.lit(0),
        refused_ids=f.lit(0),
        refusals=f.coalesce("suppressed_count", f.lit(0)) + 1,
    )
    return (
        came.unionByName(refused)
        .groupBy("user", "client_id", "minute_ms")
        .agg(
            f.min("at_ms").alias("first_ms"),
            f.max("at_ms").alias("last_ms"),
            *(f.sum(name).alias(name) for name in COUNTS),
        )
    )


def _counted(rows: DataFrame, at_ms: Column, **counts: Column) -> DataFrame:
    return rows.select(
        "user",
        "client_id",
        floored(at_ms, MINUTE_MS).alias("minute_ms"),
        at_ms.alias("at_ms"),
        *(count.cast("bigint").alias(name) for name, count in counts.items()),
    )


def by_time(hours: DataFrame, arriving: DataFrame) -> DataFrame:
    """rates_by_time: user, unit (minute, hour, day), start_ms, ids, new_ids, refusals. From id_hours and arriving.

    ids: distinct ids in use. Hours and days: all in which a user did anything. Minutes: those in which an id was
    new or refused; a user's other minutes would be most of the table and say nothing that the hour does not.
    """
    in_hours = _ids_in_hours(hours)
    in_days = _distinct_ids(hours, floored("hour_ms", DAY_MS).alias("start_ms"))
    return (
        _minutes(in_hours, arriving)
        .unionByName(_longer("hour", HOUR_MS, in_hours.withColumnRenamed("hour_ms", "start_ms"), arriving))
        .unionByName(_longer("day", DAY_MS, in_days, arriving))
    )


def _distinct_ids(hours: DataFrame, start_ms: Column) -> DataFrame:
    return hours.select("user", "producer_id", start_ms).distinct().groupBy("user", "start_ms").agg(
        f.count("*").alias("ids")
    )  # fmt: skip


def _ids_in_hours(hours: DataFrame) -> DataFrame:
    """user, hour_ms, ids, in_minutes: for each of its 60 minutes the ids in use."""
    whoever = hours.groupBy("user", "producer_id", "hour_ms").agg(f.bit_or("minutes").alias("minutes"))
    in_minute = [f.sum(f.getbit("minutes", f.lit(n)).cast("bigint")) for n in range(_MINUTES)]
    return whoever.groupBy("user", "hour_ms").agg(
        f.count("*").alias("ids"), f.array(*in_minute).alias("in_minutes")
    )


def _longer(unit: str, unit_ms: int, in_use: DataFrame, arriving: DataFrame) -> DataFrame:
    came = arriving.select(
        "user", floored("minute_ms", unit_ms).alias("start_ms"), f.lit(0).alias("ids"), "new_ids", "refusals"
    )
    used = in_use.select("user", "start_ms", "ids", f.lit(0).alias("new_ids"), f.lit(0).alias("refusals"))
    counts = [f.sum(name).alias(name) for name in ("ids", "new_ids", "refusals")]
    return (
        used.unionByName(came)
        .groupBy("user", "start_ms")
        .agg(*counts)
        .select("user", f.lit(unit).alias("unit"), "start_ms", "ids", "new_ids", "refusals")
    )


def _minutes(in_hours: DataFrame, arriving: DataFrame) -> DataFrame:
    came = (
        arriving.groupBy("user", "minute_ms")
        .agg(f.sum("new_ids").alias("new_ids"), f.sum("refusals").alias("refusals"))
        .withColumn("hour_ms", floored("minute_ms", HOUR_MS))
    )
    minute = ((f.col("minute_ms") - f.col("hour_ms")) / MINUTE_MS).cast("int")
    ids = f.coalesce(f.get("in_minutes", minute), f.lit(0).cast("bigint"))
    return came.join(in_hours, ["user", "hour_ms"], "left").select(
        "user",
        f.lit("minute").alias("unit"),
        f.col("minute_ms").alias("start_ms"),
        ids.alias("ids"),
        "new_ids",
        "refusals",
    )


def rates_clients(hours: DataFrame, arriving: DataFrame) -> DataFrame:
    """user, client_id, ids, new_ids, peak_new_ids_per_hour, requests, refusals. From id_hours and arriving.

    An id that several client ids used counts with each of them; a new id with the one that brought it.
    """
    used = (
        hours.groupBy("user", "client_id", "producer_id")
        .agg(f.sum("requests").alias("requests"))
        .groupBy("user", "client_id")
        .agg(f.count("*").alias("ids"), f.sum("requests").alias("requests"))
    )
    came = (
        arriving.groupBy("user", "client_id", floored("minute_ms", HOUR_MS))
        .agg(f.sum("new_ids").alias("new_ids"), f.sum("refusals").alias("refusals"))
        .groupBy("user", "client_id")
        .agg(
            f.sum("new_ids").alias("new_ids"),
            f.max("new_ids").alias("peak_new_ids_per_hour"),
            f.sum("refusals").alias("refusals"),
        )
    )
    counts = ("ids", "new_ids", "peak_new_ids_per_hour", "requests", "refusals")
    rows = used.unionByName(came, allowMissingColumns=True)
    # Each of the two has at most one row per client: max takes the one that knows.
    return rows.groupBy("user", "client_id").agg(
        *(f.coalesce(f.max(name), f.lit(0).cast("bigint")).alias(name) for name in counts)
    )
