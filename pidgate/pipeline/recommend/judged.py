"""The arrivals for quota trials, and their health."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.arrivals import KNOWN, arrivals

LABELS_OF_IDS = "user string, producer_id bigint, healthy boolean, pattern string"
"""labels_ids/: ground truth for each generated id."""


def arrived(decisions: DataFrame, remember_ms: int) -> DataFrame:
    """Return the arrivals of named users.

    Columns: user, producer_id, at_ms, client_id, address, transactional, refusals, and `is_first`: the id was
    never seen before.
    """
    before = Window.partitionBy("user", "producer_id").orderBy("at_ms")
    return (
        arrivals(decisions, remember_ms)
        .where("user != ''")
        .withColumn("is_first", f.lag("at_ms").over(before).isNull())
        .select(
            "user", "producer_id", "at_ms", "client_id", "address", "transactional", "refusals", "is_first"
        )
    )


def refreshed(decisions: DataFrame) -> DataFrame:
    """Return uses of remembered ids, once per slice as in events: user, producer_id, at_ms."""
    known = (f.col("decision") == "admit") & f.col("reason").isin(*KNOWN) & (f.col("producer_id") >= 0)
    return decisions.where(known & (f.col("user") != "")).select(
        "user", "producer_id", f.col("wall_time_ms").alias("at_ms")
    )


def judged_by_labels(arriving: DataFrame, labels_of_ids: DataFrame) -> DataFrame:
    """Add `healthy` by labels; an id without a label is healthy."""
    truth = labels_of_ids.select("user", "producer_id", "healthy").dropDuplicates(["user", "producer_id"])
    both = arriving.join(truth, ["user", "producer_id"], "left")
    return both.withColumn("healthy", f.coalesce("healthy", f.lit(True)))


def judged_by_findings(arriving: DataFrame, places: DataFrame) -> DataFrame:
    """Add `healthy`: false for arrivals from one of `places` (offenders_places) with a harmful pattern."""
    harmful = places.select("user", "client_id", "address", f.lit(False).alias("healthy")).distinct()
    both = arriving.join(harmful, ["user", "client_id", "address"], "left")
    return both.withColumn("healthy", f.coalesce("healthy", f.lit(True)))
