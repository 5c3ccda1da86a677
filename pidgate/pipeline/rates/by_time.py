"""New ids, refused ids and refusals per minute; also ids in use, per user and minute, hour and day."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.rates.times import DAY_MS, HOUR_MS, MINUTE_MS, floored

_MINUTES = 60
COUNTS = ("new_ids", "refused_ids", "refusals")


def arriving(arrived: DataFrame, decisions: DataFrame) -> DataFrame:
    """Return one row per (user, client_id, minute_ms) with any of COUNTS, and its first_ms and last_ms.

    A new id counts at its first admission, a refused id at its first sight.
    """
    came_ms = f.coalesce("first_admitted_ms", "at_ms")
    let_in = f.col("first_admitted_ms").isNotNull().cast("bigint")
    came = _counted(arrived, came_ms, new_ids=let_in, refused_ids=1 - let_in, refusals=f.lit(0))
    refused = _counted(
        decisions.where("decision = 'refuse'"),
        f.col("wall_time_ms"),
        new_ids=f.lit(0),
        refused_ids=f.lit(0),
        refusals=f.lit(1),
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


def by_hour(hours: DataFrame, arriving: DataFrame) -> DataFrame:
    """Return one row per user and hour of activity, from id_hours and arriving.

    ids: distinct ids in use. day_ids: those not in use in an earlier hour of the day. COUNTS; first_ms,
    last_ms: of their decisions, null without any. minutes (minute_ms, ids, new_ids, refusals): minutes with a
    new id or refusal, null without any.
    """
    in_minute = [f.sum(f.getbit("minutes", f.lit(n)).cast("bigint")) for n in range(_MINUTES)]
    used = hours.groupBy("user", "hour_ms").agg(
        f.sum("in_hour").alias("ids"),
        f.sum("in_day").alias("day_ids"),
        f.array(*in_minute).alias("in_minutes"),
    )
    minute = f.struct("minute_ms", "new_ids", "refusals")
    came = (
        arriving.groupBy("user", "minute_ms")
        .agg(*summed())
        .groupBy("user", floored("minute_ms", HOUR_MS).alias("hour_ms"))
        .agg(*summed(), f.collect_list(minute).alias("minutes"))
    )
    zero = f.lit(0).cast("bigint")

    def with_ids(one: Column) -> Column:
        place = ((one.minute_ms - f.col("hour_ms")) / MINUTE_MS).cast("int")
        ids = f.coalesce(f.get("in_minutes", place), zero)
        same = (one[name].alias(name) for name in ("minute_ms", "new_ids", "refusals"))
        return f.struct(*same, ids.alias("ids"))

    return used.join(came, ["user", "hour_ms"], "full").select(
        "user",
        "hour_ms",
        *(f.coalesce(name, zero).alias(name) for name in ("ids", "day_ids", *COUNTS)),
        "first_ms",
        "last_ms",
        f.transform("minutes", with_ids).alias("minutes"),
    )


def summed() -> list[Column]:
    """Return the sums of COUNTS, and the overall first_ms and last_ms."""
    sums = [f.sum(name).alias(name) for name in COUNTS]
    return [f.min("first_ms").alias("first_ms"), f.max("last_ms").alias("last_ms"), *sums]


def by_time(by_hour: DataFrame) -> DataFrame:
    """Return rates_by_time: user, unit (minute, hour, day), start_ms, ids, new_ids, refusals.

    ids: distinct ids in use. Hours and days: all with activity. Minutes: those with a new id or refusal; the
    others would be most of the table and add nothing to the hour.
    """
    minutes = by_hour.select("user", f.inline("minutes"))
    days = by_hour.groupBy("user", floored("hour_ms", DAY_MS).alias("day_ms")).agg(
        f.sum("day_ids").alias("ids"), f.sum("new_ids").alias("new_ids"), f.sum("refusals").alias("refusals")
    )
    units = {"minute": minutes, "hour": by_hour, "day": days}
    return reduce(
        DataFrame.unionByName,
        (
            rows.select(
                "user",
                f.lit(unit).alias("unit"),
                f.col(f"{unit}_ms").alias("start_ms"),
                "ids",
                "new_ids",
                "refusals",
            )
            for unit, rows in units.items()
        ),
    )


def rates_clients(hours: DataFrame, arriving: DataFrame) -> DataFrame:
    """Return user, client_id, ids, new_ids, peak_new_ids_per_hour, requests, refusals.

    An id of several client ids counts for each of them; a new id for the one that brought it.
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
    # Each side has at most one row per client, so max selects the non-null value.
    return rows.groupBy("user", "client_id").agg(
        *(f.coalesce(f.max(name), f.lit(0).cast("bigint")).alias(name) for name in counts)
    )
