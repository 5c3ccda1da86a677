"""Connections that clients closed: which of them were cut, and until when a quiet producer was there.

What a gateway closes (idle, drain) or a broker (upstream) says nothing of the client.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.offenders.producers import place

CUT = "reset"
BY_CLIENT = ("client", CUT)


def cut_connections(connections: DataFrame, places: DataFrame) -> DataFrame:
    """One row per `source`: resets, the share of the connections closed by its clients that were cut."""
    cut = f.when(f.col("close_reason") == CUT, f.col("count")).otherwise(0)
    closed = (
        _closed(connections)
        .groupBy("user", "place")
        .agg(f.sum("count").alias("closed"), f.sum(cut).alias("cut"))
    )
    there = closed.join(places.select("user", "place", "source"), ["user", "place"])
    return there.groupBy("source").agg((f.sum("cut") / f.sum("closed")).alias("resets"))


def until_closed(calm: DataFrame, connections: DataFrame) -> DataFrame:
    """Return the producers with last_ms at the last close at their place before the next producer starts there.

    Who sends seldom is not gone after its last use.
    """
    starts = calm.select("user", "place", f.col("seen_ms").alias("at_ms"), "producer_id")
    # Else Spark sorts all closes, which are many times as many as the places.
    there = calm.select("user", "place").distinct().hint("shuffle_hash")
    closes = _closed(connections).join(there, ["user", "place"], "left_semi")
    nobody = f.lit(None).cast("bigint").alias("producer_id")
    both = starts.unionByName(closes.select("user", "place", f.col("wall_time_ms").alias("at_ms"), nobody))
    in_time = Window.partitionBy("user", "place").orderBy("at_ms")
    closer = f.last("producer_id", ignorenulls=True).over(in_time).alias("closer")
    ended = (
        both.select("user", "producer_id", "at_ms", closer)
        .where("producer_id is null and closer is not null")
        .groupBy("user", f.col("closer").alias("producer_id"))
        .agg(f.max("at_ms").alias("closed_ms"))
    )
    known = calm.join(ended, ["user", "producer_id"], "left")
    return known.withColumn("last_ms", f.greatest("last_ms", "closed_ms")).drop("closed_ms")


def _closed(connections: DataFrame) -> DataFrame:
    by_client = connections.where((f.col("phase") == "close") & f.col("close_reason").isin(*BY_CLIENT))
    return by_client.withColumn("place", place())
