"""Producer ids from the brokers' side: blocks, inferred from their answers (KIP-730), and epochs (KIP-360).

The controller gives a broker the next 1,000 ids, aligned at multiples of 1,000; the broker hands them out in order, and
what is left of a block is lost when it restarts. So one answered id gives its block's owner, and each id below the
highest one seen was handed out before it: those that never passed the gateway went to producers past it.

A producer that lost its place in a sequence raises its epoch by one and goes on with the same id; so does each new
session of a transactional id and, with transactions v2, each commit. Epochs are 16 bits: when one is used up the id is
replaced by a new one.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

BLOCK = 1_000
HOUR_MS = 3_600_000
BURST_MS = 60_000
"""A broker that uses up a block within a minute hands out more than 16 ids a second."""


def fresh_ids(inits: DataFrame) -> DataFrame:
    """producer_id, node_id, at_ms, unnamed: ids that brokers handed out for the first time, from init_producer_id.

    A new id starts at epoch 0; a transactional id that comes back has its old one with a higher epoch, perhaps from
    another broker. unnamed: further answers that the gateway summed into this event, without their ids.
    """
    fresh = (f.col("error") == 0) & (f.col("answered_producer_id") >= 0) & (f.col("answered_epoch") == 0)
    return inits.where(fresh).select(
        f.col("answered_producer_id").alias("producer_id"),
        "node_id",
        f.col("wall_time_ms").alias("at_ms"),
        (f.coalesce("count", f.lit(1)) - 1).alias("unnamed"),
    )


def id_blocks(inits: DataFrame, decisions: DataFrame) -> DataFrame:
    """ids_blocks: one row per block of which an id was seen.

    block_start; node_id: the broker that answered with the first of its ids (null: seen in use only, or answered over
    a bootstrap address); first_ms, last_ms: when ids of it were first seen; ids_seen: how many, answered to a client
    or brought by a producer; ids_given: how many were handed out at least, up to the highest seen; ids_unnamed:
    answers without ids, each perhaps one more of ids_seen; used_up_ms: until the broker's next block
    (null: its newest); burst: that was within BURST_MS.
    """
    brought = decisions.where("producer_id >= 0").select(
        "producer_id",
        f.lit(None).cast("bigint").alias("node_id"),
        f.col("wall_time_ms").alias("at_ms"),
        f.lit(0).cast("bigint").alias("unnamed"),
    )
    answered_ms = f.when(f.col("node_id").isNotNull(), f.col("at_ms"))
    ids = (
        fresh_ids(inits)
        .unionByName(brought)
        .groupBy("producer_id")
        .agg(
            f.min("at_ms").alias("at_ms"),
            f.min_by("node_id", answered_ms).alias("node_id"),
            f.min(answered_ms).alias("answered_ms"),
            f.sum("unnamed").alias("unnamed"),
        )
    )
    blocks = ids.groupBy((f.col("producer_id") - f.col("producer_id") % BLOCK).alias("block_start")).agg(
        f.min_by("node_id", "answered_ms").alias("node_id"),
        f.min("at_ms").alias("first_ms"),
        f.max("at_ms").alias("last_ms"),
        f.count("*").alias("ids_seen"),
        (f.max("producer_id") % BLOCK + 1).alias("ids_given"),
        f.sum("unnamed").alias("ids_unnamed"),
    )
    return _with_bursts(blocks)


def _with_bursts(blocks: DataFrame) -> DataFrame:
    """A row is a thousand ids: even many ids are few rows."""
    of_node = Window.partitionBy("node_id").orderBy("first_ms", "block_start")
    until_next_ms = f.lead("first_ms").over(of_node) - f.col("first_ms")
    used_up_ms = f.when(f.col("node_id").isNotNull(), until_next_ms)
    return blocks.withColumn("used_up_ms", used_up_ms).withColumn(
        "burst", f.coalesce(f.col("used_up_ms") < BURST_MS, f.lit(False))
    )


def blocks_by_hour(blocks: DataFrame) -> DataFrame:
    """ids_by_hour: hour_ms, node_id, blocks (that began in this hour), ids_seen, ids_in_blocks, ids_unnamed, bursts,
    coverage.

    ids_in_blocks: handed out of them at least. coverage: ids_seen of these, 0 to 1; a lower bound while there are
    unnamed ones. A share below 1 else means producers that reach the brokers past the gateway.
    """
    hour_ms = f.col("first_ms") - f.col("first_ms") % HOUR_MS
    return (
        blocks.groupBy(hour_ms.alias("hour_ms"), "node_id")
        .agg(
            f.count("*").alias("blocks"),
            f.sum("ids_seen").alias("ids_seen"),
            f.sum("ids_given").alias("ids_in_blocks"),
            f.sum("ids_unnamed").alias("ids_unnamed"),
            f.count_if("burst").alias("bursts"),
        )
        .withColumn("coverage", f.col("ids_seen") / f.col("ids_in_blocks"))
    )


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
