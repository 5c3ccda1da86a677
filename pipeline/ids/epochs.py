"""Epochs of producer ids, and how far they rose.

KIP-360: a producer that lost its place in a sequence raises its epoch by one and goes on with the same id; so does
each new session of a transactional id and, with transactions v2, each commit. Epochs are 16 bits: when one is used
up the id is replaced by a new one.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column

EXHAUSTED_FROM = 32_766
"""Short.MAX_VALUE - 1: from here on Kafka gives a new id instead of a higher epoch."""


def epochs(decisions: DataFrame, usages: DataFrame, inits: DataFrame) -> DataFrame:
    """ids_epochs: user, producer_id, first_epoch, last_epoch, bumps, exhausted; of ids seen above epoch 0 alone.

    Epochs never fall, so the lowest is the first. bumps: between the first and the last that we saw.
    """
    id_column = f.col("producer_id")
    parts = [
        _seen(decisions, id_column, f.col("epoch")),
        _seen(usages, id_column, f.col("epoch")),
        _seen(inits.where("error = 0"), f.col("answered_producer_id"), f.col("answered_epoch")),
    ]
    ids = (
        reduce(DataFrame.unionByName, parts)
        .where((f.col("producer_id") >= 0) & (f.col("epoch") >= 0))
        .groupBy("user", "producer_id")
        .agg(f.min("epoch").alias("first_epoch"), f.max("epoch").alias("last_epoch"))
    )
    return ids.where("last_epoch > 0").select(
        "*",
        (f.col("last_epoch") - f.col("first_epoch")).alias("bumps"),
        (f.col("last_epoch") >= EXHAUSTED_FROM).alias("exhausted"),
    )


def _seen(events: DataFrame, producer_id: Column, epoch: Column) -> DataFrame:
    return events.select("user", producer_id.alias("producer_id"), epoch.alias("epoch"))
