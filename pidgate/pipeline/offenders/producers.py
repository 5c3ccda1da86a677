"""Life of each producer id: when it came, how long it was used, for how much, and with which errors.

One row per (user, producer id), in numbers only: Spark sums numbers up in a hash table, text only by sorting. The
names are in places.py, one row for each place.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.findings.features import Span
from pidgate.pipeline.arrivals import arrivals


def place() -> Column:
    """A client id at an address, as a number."""
    return f.xxhash64("client_id", "address").alias("place")


def producers(decisions: DataFrame, usage: DataFrame, errors: DataFrame) -> DataFrame:
    """One row per (user, producer_id) that was met: refused, admitted or in use.

    started_ms: when it came; null when it is older than the history. last_ms: its last use that is known.
    admitted: false when it was never let in. requests: null when none was forwarded (or reported). failed: its last use
    came with an error (errors are reported with a slice, so one in mid-life comes before the last use). name,
    connection: the transactional id and the first connection, as numbers.
    """
    by_id = ["user", "producer_id"]
    known = _starts(decisions).join(_lives(usage), by_id, "full").join(_errors(errors), by_id, "left")
    seen_ms = f.coalesce("started_ms", "first_ms")
    return known.select(
        "user",
        "producer_id",
        f.coalesce("start_place", "use_place").alias("place"),
        "started_ms",
        seen_ms.alias("seen_ms"),
        f.greatest(seen_ms, f.coalesce("last_ms", seen_ms)).alias("last_ms"),
        f.coalesce("admitted", f.lit(True)).alias("admitted"),
        "requests",
        f.coalesce(f.col("error_ms") >= f.col("last_ms"), f.lit(False)).alias("failed"),
        "error_code",
        f.coalesce("transactional", f.lit(False)).alias("transactional"),
        "name",
        "connection",
    )


def _starts(decisions: DataFrame) -> DataFrame:
    """The first sight of each id. One that comes back after a long pause is the same producer here."""
    arrived = arrivals(decisions).withColumns(
        {
            "place": place(),
            "name": f.when(f.col("transactional_id_hash").isNotNull(), f.xxhash64("transactional_id_hash")),
            "connection": f.xxhash64("gateway_id", "incarnation", "connection_id"),
        }
    )
    return arrived.groupBy("user", "producer_id").agg(
        f.min("at_ms").alias("started_ms"),
        f.min("place").alias("start_place"),
        f.max(f.col("first_admitted_ms").isNotNull()).alias("admitted"),
        f.max("transactional").alias("transactional"),
        f.min("name").alias("name"),
        f.min("connection").alias("connection"),
    )


def _lives(usage: DataFrame) -> DataFrame:
    reported = usage.where("producer_id >= 0").withColumn("place", place())
    return reported.groupBy("user", "producer_id").agg(
        f.min("place").alias("use_place"),
        f.sum("requests").alias("requests"),
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
    )


def _errors(errors: DataFrame) -> DataFrame:
    reported = errors.where("producer_id >= 0")
    return reported.groupBy("user", "producer_id").agg(
        f.max("wall_time_ms").alias("error_ms"), f.min("code").alias("error_code")
    )


def span_of(known: DataFrame) -> Span:
    """Return when the events begin and end; 0 and 0 when there is nothing."""
    first_ms, last_ms = known.agg(f.min("seen_ms"), f.max("last_ms")).collect()[0]
    return Span(first_ms or 0, last_ms or 0)
