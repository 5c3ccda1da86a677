"""Groups of producers that are looked at together: of one place, one address, or one application.

A place is a client id at an address. What happens there often enough has a story of its own. Where every start
has another client id or another address (pods, counted names), no place shows anything, but all together do.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pidgate.findings.families import ANYTHING, OWN_STORY, REPLACEMENTS
from pidgate.pipeline.offenders.producers import place


def family(client_id: Column) -> Column:
    """Return what findings.families.family returns of each client id."""
    for expression, keeps, text in REPLACEMENTS:
        client_id = f.regexp_replace(client_id, expression, f"$1{text}" if keeps else text)
    return client_id


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
