"""Event numbers seen of each incarnation: duplicates and gaps.

A gateway numbers its events without gaps, so all that must be remembered of an incarnation are the runs of numbers
that were seen (columns.INTERVALS): one run where nothing was lost, however long it lives. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pidgate.pipeline.ingest.columns import GAPS, INTERVALS, Cause

_OF = ("gateway_id", "incarnation")
_SETTLED_MS = 60_000
"""Gateways write `alive` every 30 s; a minute after the topic's beginning all of them have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Offsets that were removed from a partition before they were read; a row of losses/."""

    kafka_partition: int
    first_offset: int
    last_offset: int
    resumed_ms: int
    topic_id: str

    @property
    def missing(self) -> int:
        return self.last_offset - self.first_offset + 1


def numbered(arrivals: DataFrame) -> DataFrame:
    """Return records that have a number, readable or not: they came."""
    return arrivals.where("gateway_id is not null and incarnation is not null and seq is not null").select(
        *_OF,
        "seq",
        "kafka_partition",
        "kafka_offset",
        "append_time_ms",
        f.col("reason").isNotNull().alias("dead"),
    )


def marked(intervals: DataFrame, arrived: DataFrame) -> DataFrame:
    """Return the known intervals and the numbers that arrived in one order.

    Adds `duplicate` (a number that was seen before, in an earlier batch or above in this one) and `island`, equal for
    all that follow each other without a gap. A readable copy is taken before one that is not.
    """
    no_offset = f.lit(None).cast("bigint")
    known = intervals.select(
        *INTERVALS.names,
        f.lit(False).alias("dead"),
        f.lit(-1).alias("kafka_partition"),
        no_offset.alias("kafka_offset"),
    )
    new = arrived.select(
        *_OF,
        f.col("seq").alias("first_seq"),
        f.col("seq").alias("last_seq"),
        f.col("append_time_ms").alias("first_ms"),
        f.col("append_time_ms").alias("last_ms"),
        "dead",
        "kafka_partition",
        "kafka_offset",
    )
    order = Window.partitionBy(*_OF).orderBy(
        "first_seq", f.col("kafka_offset").isNotNull(), "dead", "kafka_partition", "kafka_offset"
    )
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    # Whoever wrote the lowest number of 64 bits must not stop the stream.
    previous = f.coalesce(f.try_subtract("first_seq", f.lit(1)), f.col("first_seq"))
    return (
        known.unionByName(new)
        .withColumn("reached", f.max("last_seq").over(before))
        .withColumn("duplicate", f.col("kafka_offset").isNotNull() & (f.col("reached") >= f.col("first_seq")))
        .withColumn("opens", f.col("reached").isNull() | (previous > f.col("reached")))
        .withColumn("duplicate", f.coalesce("duplicate", f.lit(False)))
        .withColumn("island", f.sum(f.col("opens").cast("int")).over(order))
    )


def merged(marks: DataFrame) -> DataFrame:
    """Return the intervals after these arrivals."""
    return (
        marks.groupBy(*_OF, "island")
        .agg(
            f.min("first_seq").alias("first_seq"),
            f.max("last_seq").alias("last_seq"),
            f.min("first_ms").alias("first_ms"),
            f.max("last_ms").alias("last_ms"),
        )
        .select(*INTERVALS.names)
    )


def duplicates(marks: DataFrame) -> DataFrame:
    """Return partition and offset of the duplicates."""
    return marks.where("duplicate").select("kafka_partition", "kafka_offset")


def remembered(intervals: DataFrame, since_ms: int) -> DataFrame:
    """Drop incarnations that were silent since then."""
    last_ms = f.max("last_ms").over(Window.partitionBy(*_OF))
    return intervals.withColumn("heard_ms", last_ms).where(f.col("heard_ms") >= since_ms).drop("heard_ms")


def gaps(intervals: DataFrame, noticed_before_ms: int, losses: Sequence[Loss] = ()) -> DataFrame:
    """Return numbers before, and between, those that were seen (columns.GAPS), if noticed early enough.

    The first number of an incarnation is 1. What was behind the last one is not known here.
    `cause` is `retention` where the topic had removed records (`losses`) at that time, else `lost`.
    """
    order = Window.partitionBy(*_OF).orderBy("first_seq")
    sides = intervals.withColumns(
        {
            "before_seq": f.coalesce(f.lag("last_seq").over(order), f.lit(0)),
            "before_ms": f.lag("last_ms").over(order),
        }
    )
    missing = f.try_subtract(f.try_subtract("first_seq", "before_seq"), f.lit(1))
    return (
        sides.withColumn("missing", missing)
        .where((f.col("missing") > 0) & (f.col("first_ms") <= noticed_before_ms))
        .select(
            *_OF,
            (f.col("before_seq") + 1).alias("first_seq"),
            (f.col("first_seq") - 1).alias("last_seq"),
            "missing",
            f.col("first_ms").alias("noticed_ms"),
            f.when(_explained(losses), Cause.RETENTION.value).otherwise(Cause.LOST.value).alias("cause"),
        )
        .select(*GAPS.names)
    )


def _explained(losses: Sequence[Loss]) -> Column:
    """Return whether offsets were lost between the two sides of the gap."""
    found = f.lit(False)
    for loss in losses:
        after = f.col("before_ms").isNull() | (f.col("before_ms") <= loss.resumed_ms)
        found = found | (after & (f.col("first_ms") <= loss.resumed_ms + _SETTLED_MS))
    return found


def with_final(current: DataFrame, before: DataFrame, intervals: DataFrame) -> DataFrame:
    """The gaps table: what is missing now, and for good what was missing of incarnations that are forgotten."""
    known = intervals.select(*_OF).distinct()
    return current.unionByName(before.join(known, list(_OF), "left_anti").select(*GAPS.names))
