"""Producer ids on the brokers' side: blocks inferred from responses (KIP-730), and epochs (KIP-360).

The controller assigns a broker blocks of 1,000 ids, aligned at multiples of 1,000. The broker gives them out
in order and loses the rest of a block on restart. One observed id therefore shows its block's owner, and all
lower ids of the block were given out before. Those never seen by the gateway went to producers that bypass
it.

A producer that lost its sequence raises its epoch by one and keeps the id. So does each new session of a
transactional id and, with transactions v2, each commit. Epochs have 16 bits; after the last one the id is
replaced.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

BLOCK = 1_000
HOUR_MS = 3_600_000
BURST_MS = 60_000
"""A broker that uses up a block within a minute gives out more than 16 ids per second."""


def fresh_ids(inits: DataFrame) -> DataFrame:
    """Return producer_id, node_id, at_ms, unnamed: ids given out for the first time, from init_producer_id.

    A new id starts at epoch 0. A returning transactional id has its old id with a higher epoch, perhaps from
    another broker. unnamed: further responses that the gateway summed into the event without their ids.
    """
    fresh = (f.col("error") == 0) & (f.col("answered_producer_id") >= 0) & (f.col("answered_epoch") == 0)
    return inits.where(fresh).select(
        f.col("answered_producer_id").alias("producer_id"),
        "node_id",
        f.col("wall_time_ms").alias("at_ms"),
        (f.coalesce("count", f.lit(1)) - 1).alias("unnamed"),
    )


def id_blocks(inits: DataFrame, decisions: DataFrame) -> DataFrame:
    """Return ids_blocks: one row per block with an observed id.

    block_start; node_id: the broker that sent the first of its ids (null: only seen in use, or sent through a
    bootstrap address); first_ms, last_ms: range of first observations; ids_seen: ids observed in responses or
    from producers; ids_given: ids given out at least, up to the highest one seen; ids_unnamed: responses
    without ids, each perhaps one more of ids_seen; used_up_ms: time until the broker's next block (null: its
    newest); burst: within BURST_MS.
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
    """One row stands for a thousand ids, so there are few rows."""
    of_node = Window.partitionBy("node_id").orderBy("first_ms", "block_start")
    until_next_ms = f.lead("first_ms").over(of_node) - f.col("first_ms")
    used_up_ms = f.when(f.col("node_id").isNotNull(), until_next_ms)
    return blocks.withColumn("used_up_ms", used_up_ms).withColumn(
        "burst", f.coalesce(f.col("used_up_ms") < BURST_MS, f.lit(False))
    )


def blocks_by_hour(blocks: DataFrame) -> DataFrame:
    """Return ids_by_hour: hour_ms, node_id, blocks, ids_seen, ids_in_blocks, ids_unnamed, bursts, coverage.

    blocks: those that began in this hour. ids_in_blocks: ids given out of them at least. coverage: the share
    of these in ids_seen, 0 to 1; a lower bound if there are unnamed ones. Otherwise a share below 1 means
    that producers bypass the gateway.
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
"""Short.MAX_VALUE - 1: from here Kafka assigns a new id instead of a higher epoch."""


def epochs(decisions: DataFrame, usages: DataFrame, inits: DataFrame) -> DataFrame:
    """Return ids_epochs: user, producer_id, first_epoch, last_epoch, bumps, exhausted.

    Only ids above epoch 0. Epochs never decrease, so the lowest is the first. bumps: between the first and
    the last observed epoch.
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
