"""Hours of use per id: its user, the minutes, and the stay at the brokers.

All rows of an id are sent to one task and sorted once. Rows that count an id once are marked in that order,
so all later counts are sums.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.rates.times import DAY_MS, HOUR_MS, MINUTE_MS, floored

_NEVER_WROTE = ("inherited",)
"""Admissions without a batch: nothing of the id has reached a broker yet."""


PARTS = 4
"""Multiple of Spark's default number of tasks, so that the ids of one fit into memory."""


def id_hours(decisions: DataFrame, usages: DataFrame, expiry_ms: int) -> DataFrame:
    """Return one row per (user, client_id, producer_id, hour_ms) with forwarded requests of the id.

    first_ms, last_ms: of its use in that hour. requests: counted in the hour in which the id_usage interval
    begins. partitions: the maximum in an id_usage event, a lower bound; null without an event (lost or still
    to come). stay (1, 2, ...): uses no further apart than the expiry.

    minutes: bit n is set if the id was in use in minute n: between the first and the last request of an
    id_usage event (15 minutes at most), or admitted. in_hour, in_day: 1. If several clients used an id, each
    minute, hour and day counts in the first client's row only (the others have no bit, and 0).

    A refused request was not forwarded and is no use.
    """
    stretches = _admissions(decisions).unionByName(_stretches(usages))
    parts = PARTS * int(stretches.sparkSession.conf.get("spark.sql.shuffle.partitions") or 8)
    hours = (
        stretches.repartition(parts, *_ID)
        .groupBy("user", "client_id", "producer_id", "hour_ms")
        .agg(
            f.min("first_ms").alias("first_ms"),
            f.max("last_ms").alias("last_ms"),
            f.bit_or("minutes").alias("minutes"),
            f.sum("requests").alias("requests"),
            f.max("partitions").alias("partitions"),
        )
    )
    return _each_once(hours, expiry_ms)


_ID = ("producer_id", "user")
"""Number first: Spark compares it first, and the text only if it is equal."""


def _each_once(hours: DataFrame, expiry_ms: int) -> DataFrame:
    """Add stay, in_hour and in_day, and clear the `minutes` of earlier rows of the id."""
    order = ("first_ms", "last_ms", "client_id")
    by_id = Window.partitionBy(*_ID).orderBy("hour_ms", *order)
    before = by_id.rowsBetween(Window.unboundedPreceding, -1)
    up_to_here = by_id.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before_in_hour = (
        Window.partitionBy(*_ID, "hour_ms").orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    )
    begins = f.coalesce(f.col("first_ms") - f.max("last_ms").over(before) > expiry_ms, f.lit(True))
    last_hour_ms = f.lag("hour_ms").over(by_id)
    marked = hours.withColumns(
        {
            "begins": begins,
            "in_hour": _is_new(last_hour_ms, f.col("hour_ms")),
            "in_day": _is_new(floored(last_hour_ms, DAY_MS), floored("hour_ms", DAY_MS)),
            "had": f.coalesce(f.bit_or("minutes").over(before_in_hour), f.lit(0).cast("bigint")),
        }
    )
    return marked.select(
        *(name for name in hours.columns if name != "minutes"),
        f.col("minutes").bitwiseAND(f.bitwise_not("had")).alias("minutes"),
        "in_hour",
        "in_day",
        f.count_if("begins").over(up_to_here).alias("stay"),
    )


def _is_new(last: Column, this: Column) -> Column:
    return f.when(last.eqNullSafe(this), 0).otherwise(1).cast("bigint")


def _admissions(decisions: DataFrame) -> DataFrame:
    at = f.col("wall_time_ms")
    admitted = (f.col("decision") == "admit") & ~f.col("reason").isin(*_NEVER_WROTE)
    return decisions.where(admitted & (f.col("producer_id") >= 0)).select(
        "user",
        "client_id",
        "producer_id",
        floored(at, HOUR_MS).alias("hour_ms"),
        at.alias("first_ms"),
        at.alias("last_ms"),
        _minutes(at, at).alias("minutes"),
        f.lit(0).cast("bigint").alias("requests"),
        f.lit(None).cast("bigint").alias("partitions"),
    )


def _stretches(usages: DataFrame) -> DataFrame:
    """Split at full hours; few rows need it."""
    first, last, hour = f.col("first_ms"), f.greatest("first_ms", "last_ms"), f.col("hour_ms")
    hours = f.sequence(floored(first, HOUR_MS), floored(last, HOUR_MS), f.lit(HOUR_MS))
    cut = usages.where("producer_id >= 0").withColumn("hour_ms", f.explode(hours))
    begin, end = f.greatest(first, hour), f.least(last, hour + (HOUR_MS - 1))
    return cut.select(
        "user",
        "client_id",
        "producer_id",
        "hour_ms",
        begin.alias("first_ms"),
        end.alias("last_ms"),
        _minutes(begin, end).alias("minutes"),
        f.when(first >= hour, f.col("requests")).otherwise(0).alias("requests"),
        "partitions",
    )


def _minutes(begin: Column, end: Column) -> Column:
    """Return the bits of the minutes from begin to end, both in one hour."""
    return _bit(_minute(end) + 1) - _bit(_minute(begin))


def _minute(time_ms: Column) -> Column:
    return (time_ms % HOUR_MS / MINUTE_MS).cast("int")


def _bit(number: Column) -> Column:
    return f.call_function("shiftleft", f.lit(1).cast("bigint"), number)
