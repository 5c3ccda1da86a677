"""In which hours an id was used, by whom, and in which of their minutes.

Events lie in folders of an hour each, so most of the summing happens before anything is sent between processes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.rates.times import HOUR_MS, MINUTE_MS, floored

_NEVER_WROTE = ("inherited",)
"""Admissions without a batch: nothing of the id has reached a broker yet."""


def id_hours(decisions: DataFrame, usages: DataFrame) -> DataFrame:
    """One row per (user, client_id, producer_id, hour_ms) in which something of the id was forwarded.

    first_ms, last_ms: of its use in that hour. minutes: bit n is set when it was in use in minute n: between the
    first and the last request of an id_usage event (15 minutes at most), or admitted. requests: counted in the hour
    in which their id_usage event's stretch begins. partitions: the most that one id_usage event counted, a lower
    bound; null when there was none (the event was lost, or is still to come).

    A refused request was not forwarded and is no use.
    """
    stretches = _admissions(decisions).unionByName(_stretches(usages))
    return stretches.groupBy("user", "client_id", "producer_id", "hour_ms").agg(
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
        f.bit_or("minutes").alias("minutes"),
        f.sum("requests").alias("requests"),
        f.max("partitions").alias("partitions"),
    )


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
    """Cut at the full hour; hardly any is."""
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
    """Return the bits of the minutes from begin to end, which lie in one hour."""
    return _bit(_minute(end) + 1) - _bit(_minute(begin))


def _minute(time_ms: Column) -> Column:
    return (time_ms % HOUR_MS / MINUTE_MS).cast("int")


def _bit(number: Column) -> Column:
    return f.call_function("shiftleft", f.lit(1).cast("bigint"), number)
