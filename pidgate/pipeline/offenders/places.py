"""Groups of producers that are looked at together: of one place, one address, or one application.

A place is a client id at an address. What happens there often enough has a story of its own. Where every start
has another client id or another address (pods, counted names), no place shows anything, but all together do.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.offenders.producers import place
from pidgate.pipeline.offenders.sentences import ANYTHING

OWN_STORY = 8
"""So many new ids make a place, or else an address, a source of its own: fewer show no rhythm."""

_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_POD = r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}(?=-|$)"
"""The letters that Kubernetes draws names of pods and replica sets from: no vowels, so no words."""
_NUMBERED = r"(?<![A-Za-z0-9])([A-Za-z]+)[0-9]+(?![A-Za-z0-9])"
_DRAWN = r"(?<![A-Za-z0-9])[A-Za-z]*[0-9][A-Za-z0-9]*(?![A-Za-z0-9])"


def family(client_id: Column) -> Column:
    """A client id without what counts or was drawn at random: producer-17 -> producer*, a-7f9c-x2k4q -> a-*-*."""
    named = f.regexp_replace(f.regexp_replace(client_id, _UUID, ANYTHING), _POD, f"-{ANYTHING}")
    return f.regexp_replace(f.regexp_replace(named, _NUMBERED, f"$1{ANYTHING}"), _DRAWN, ANYTHING)


def places(known: DataFrame, decisions: DataFrame, usage: DataFrame) -> DataFrame:
    """One row per user and place: client_id, address, app, alone, source (number of the group it belongs to), and the
    client and address to name the source by (null: several).

    `known`: producers(). An application is a family of client ids; families too small for a story are one together.
    """
    counted = known.groupBy("user", "place").agg(
        f.count("*").alias("ids"), f.count("started_ms").alias("starts")
    )
    named = decisions.where("producer_id >= 0").select("user", "client_id", "address")
    named = named.union(usage.select("user", "client_id", "address")).distinct()
    there = named.withColumn("place", place()).join(counted, ["user", "place"])
    there = there.withColumn("family", family(f.col("client_id")))

    of_family = Window.partitionBy("user", "family")
    is_large = f.sum("ids").over(of_family) >= OWN_STORY
    app = f.when(is_large, f.col("family")).otherwise(ANYTHING)
    # Names that are drawn as a whole are a family whose name is ANYTHING, too, and have nothing to do with the rest.
    there = there.withColumns({"app": app, "is_large": is_large, "alone": f.col("starts") >= OWN_STORY})
    rest = f.when(~f.col("alone"), f.col("starts"))
    at_address = f.sum(rest).over(Window.partitionBy("user", "app", "is_large", "address")) >= OWN_STORY
    there = there.withColumn("at_one_address", f.coalesce(at_address, f.lit(False)))
    client = f.when(f.col("alone"), f.col("client_id")).otherwise(f.col("app"))
    address = f.when(f.col("alone") | f.col("at_one_address"), f.col("address"))
    return there.withColumns({"client": client, "at": address}).select(
        "user",
        "place",
        "client_id",
        "address",
        "app",
        "alone",
        "client",
        "at",
        f.xxhash64("user", "alone", "is_large", "client", "at").alias("source"),
    )
