"""New ids, refused ids and refusals, minute by minute."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.rates.times import MINUTE_MS, floored

COUNTS = ("new_ids", "refused_ids", "refusals")


def arriving(arrived: DataFrame, decisions: DataFrame) -> DataFrame:
    """One row per (user, client_id, minute_ms) in which there was any of COUNTS; first_ms, last_ms: in that minute.

    A new id counts when it was admitted first, a refused id when it was first seen. Refusals that the gateway left
    out of its events (`refusals: sampled`) count with the next one of the same user that was written.
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
