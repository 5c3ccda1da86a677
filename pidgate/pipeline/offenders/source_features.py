"""SourceFeatures over tables."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.findings.features import SHORT_LIFE_MS
from pidgate.pipeline.offenders.cadence import cadence


def source_features(known: DataFrame, cut: DataFrame) -> DataFrame:
    """One row per `source` that brought ids within the history, with the SourceFeatures (findings/features.py).

    `known`: producers with `source`; `cut`: cut_connections().
    """
    started = known.where("started_ms is not null")
    used = f.col("requests").isNotNull()
    life_ms = f.col("last_ms") - f.col("started_ms")
    summed = started.groupBy("user", "source").agg(
        f.count_if("admitted").alias("new_ids"),
        f.count_if(~f.col("admitted")).alias("refused_ids"),
        f.count_if(used).alias("used"),
        _share(used & (f.col("requests") <= 1), used).alias("one_request"),
        _share(used & (f.col("requests") <= 2), used).alias("two_requests"),
        f.avg("requests").alias("requests"),
        _share(used & (life_ms < SHORT_LIFE_MS), used).alias("short_lived"),
        f.exp(f.avg(f.when(used, f.ln(f.greatest(life_ms, f.lit(1)))))).cast("bigint").alias("life_ms"),
        _share(used & f.col("failed"), used).alias("failed"),
        f.min("error_code").alias("error_code"),
        f.avg(f.col("transactional").cast("int")).alias("transactional"),
        f.approx_count_distinct("name", 0.02).alias("names"),
        (f.approx_count_distinct("connection", 0.02) / f.count("*")).alias("connections"),
        f.min("started_ms").alias("first_ms"),
        f.max("last_ms").alias("end_ms"),
        f.sum(life_ms).alias("lives_ms"),
    )
    length_ms = f.greatest(f.col("end_ms") - f.col("first_ms"), f.lit(1))
    alive = (f.col("lives_ms") / length_ms).alias("alive")
    summed = summed.select("*", alive, length_ms.alias("active_ms")).drop("lives_ms")
    return summed.join(cadence(started), "source", "left").join(cut, "source", "left")


def _share(part: Column, whole: Column) -> Column:
    """Return a share of the rows of a group; null when the whole is nothing."""
    return f.try_divide(f.count_if(part), f.count_if(whole))
