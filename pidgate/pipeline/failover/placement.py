"""Shares of a topic's states by broker, and settings of brokers and gateways in force.

Brokers keep producer state on every replica of a partition, not only on the leader (KIP-847), so replicas are
counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pidgate.pipeline.failover.held import HOUR_MS, UNKNOWN_TOPIC
from pidgate.pipeline.newest import newest_event
from pidgate.quota.settings import Mode


def shares(topology: DataFrame) -> DataFrame:
    """Return topic, broker, share: the share of the topic's partitions with a replica on the broker.

    Shares sum up to the replication factor. The unknown topic ("") has the mean over all partitions. Only
    each topic's newest event counts, because later ones contain only changes.
    """
    topics = topology.select("wall_time_ms", f.explode("topics").alias("place"))
    newest = topics.groupBy(f.col("place.topic").alias("topic")).agg(
        f.max_by("place.replicas", "wall_time_ms").alias("replicas")
    )
    partitions = newest.select("topic", f.explode("replicas").alias("brokers"))
    replicas = partitions.select("topic", f.explode("brokers").alias("broker"))
    counted = replicas.groupBy("topic", "broker").count()
    whole = partitions.groupBy("topic").agg(f.count("*").alias("partitions"))
    known = counted.join(whole, "topic").select(
        "topic", "broker", f.expr("count / partitions").alias("share")
    )
    everywhere = counted.groupBy("broker").agg(f.sum("count").alias("count"))
    mean = everywhere.crossJoin(whole.agg(f.sum("partitions").alias("partitions"))).select(
        f.lit(UNKNOWN_TOPIC).alias("topic"), "broker", f.expr("count / partitions").alias("share")
    )
    return known.unionByName(mean)


def even_shares(spark: SparkSession, brokers: int, replication_factor: int) -> DataFrame:
    """Return the same for a cluster of known size only: everything evenly on brokers 1 to n."""
    share = min(replication_factor, brokers) / brokers
    rows = [(UNKNOWN_TOPIC, broker, share) for broker in range(1, brokers + 1)]
    return spark.createDataFrame(rows, "topic string, broker bigint, share double")


@dataclass(frozen=True, slots=True)
class Bucket:
    """Settings shared by all users' quotas."""

    window_ms: int = HOUR_MS
    burst: float = 1.0
    false_positive_rate: float = 0.001
    default_rate: float | None = None
    """Ids per window of users without their own rate; None: no limit."""

    def most_admitted(self, rate: float, during_ms: int) -> float:
        """Return the most new ids admitted within this time: (burst + time in windows) x rate + 1."""
        return rate * (self.burst + during_ms / self.window_ms) + 1


def bucket_in_force(config: DataFrame) -> Bucket:
    """Return the bucket of the newest config event, or the gateway's defaults."""
    row = newest_event(config)
    if row is None:
        return Bucket()
    default = row["default_rate_milli"]
    return Bucket(
        row["window_ms"],
        row["burst"],
        row["false_positive_rate"],
        None if default is None else default / 1000,
    )


def enforced(config: DataFrame) -> tuple[DataFrame, float | None] | None:
    """Return (user, rate) of single users and the default rate, as enforced by the newest config event.

    None if nothing is enforced. A rate is null for users that are exempt, in observe mode or without a limit.
    """
    row = newest_event(config)
    if row is None:
        return None
    rows: list[tuple[str, float | None]] = []
    default_milli = row["default_rate_milli"]
    for quota in row["quotas"]:
        rate_milli = default_milli if quota["rate_milli"] is None else quota["rate_milli"]
        is_held = (
            not quota["exempt"] and (quota["mode"] or row["mode"]) == Mode.ENFORCE and rate_milli is not None
        )
        rows.append((quota["user"], rate_milli / 1000 if is_held else None))
    is_held = row["mode"] == Mode.ENFORCE
    if not is_held and all(rate is None for _, rate in rows):
        return None
    default = default_milli / 1000 if is_held and default_milli is not None else None
    return config.sparkSession.createDataFrame(rows, "user string, rate double"), default
