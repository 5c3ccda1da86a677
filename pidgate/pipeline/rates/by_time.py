"""New ids, refused ids and refusals minute by minute; ids in use besides, of each user per minute, hour and day."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.rates.times import DAY_MS, HOUR_MS, MINUTE_MS, floored

_MINUTES = 60
COUNTS = ("new_ids", "refused_ids", "refusals")


def arriving(arrived: DataFrame, decisions: DataFrame) -> DataFrame:
    """One row per (user, client_id, minute_ms) in which there was any of COUNTS; first_ms, last_ms: in that minute.

    A new id counts when it was admitted first, a refused id when it was first seen.
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


def by_hour(hours: DataFrame, arriving: DataFrame) -> DataFrame:
    """One row per user and hour in which it did anything, from id_hours and arriving.

    ids: distinct ids in use. day_ids: those that were not in use in an earlier hour of the day. COUNTS; first_ms,
    last_ms: of the decisions among them, null where there were none. minutes (minute_ms, ids, new_ids, refusals): those
    in which an id was new or refused; null where there were none.
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
    """Return the sums of COUNTS, and first_ms and last_ms of them all."""
    sums = [f.sum(name).alias(name) for name in COUNTS]
    return [f.min("first_ms").alias("first_ms"), f.max("last_ms").alias("last_ms"), *sums]


def by_time(by_hour: DataFrame) -> DataFrame:
    """rates_by_time: user, unit (minute, hour, day), start_ms, ids, new_ids, refusals. From by_hour.

    ids: distinct ids in use. Hours and days: all in which a user did anything. Minutes: those in which an id was
    new or refused; a user's other minutes would be most of the table and say nothing that the hour does not.
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
