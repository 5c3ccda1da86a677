"""Numbers that were seen, twice or never: against sets of numbers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pidgate.pipeline.ingest import seqs
from pidgate.pipeline.ingest.columns import GAPS, INTERVALS, Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession


ARRIVED = (
    "gateway_id string, incarnation string, seq bigint, kafka_partition int, kafka_offset bigint, "
    "append_time_ms bigint, dead boolean"
)
Arrived = tuple[str, str, int, int, int, int, bool]
Interval = tuple[str, str, int, int, int, int]
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


def intervals(spark: SparkSession, *rows: Interval) -> DataFrame:
    return spark.createDataFrame(list(rows), INTERVALS)


def after(spark: SparkSession, before: DataFrame, arrived: list[Arrived]) -> tuple[list[Interval], list[int]]:
    """The intervals then, and the offsets of duplicates."""
    marks = seqs.marked(before, spark.createDataFrame(arrived, ARRIVED)).persist()
    made = sorted(tuple(row) for row in seqs.merged(marks).collect())
    twice = sorted(row["kafka_offset"] for row in seqs.duplicates(marks).collect())
    marks.unpersist()
    return made, twice


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if made and made[-1][1] + 1 == number:
            made[-1] = (made[-1][0], number)
        else:
            made.append((number, number))
    return made


def test_as_sets_would_have_it(spark: SparkSession) -> None:
    """Two processes, three batches, out of order, with repeats in and across batches."""
    chance = random.Random(11)
    known = intervals(spark)
    seen: dict[str, set[int]] = {"a": set(), "b": set()}
    for _ in range(3):
        arrived: list[Arrived] = []
        repeated = []
        for offset in range(150):
            of, number = chance.choice("ab"), chance.randrange(1, 200)
            arrived.append(("gw", of, number, 0, offset, 1000 + offset, False))
        for _gateway, of, number, _partition, offset, *_more in arrived:
            if number in seen[of]:
                repeated.append(offset)
            seen[of].add(number)
        made, twice = after(spark, known, arrived)
        assert twice == repeated
        assert [row[1:4] for row in made] == [(of, *run) for of in "ab" for run in runs(seen[of])]
        known = intervals(spark, *made)


def test_times_of_an_interval_and_the_ends_of_64_bits(spark: SparkSession) -> None:
    before = intervals(spark, ("gw", "a", 1, 4, 100, 400), ("gw", "b", LOWEST, LOWEST, 5, 5))
    arrived: list[Arrived] = [
        ("gw", "a", 5, 0, 7, 550, False),
        ("gw", "a", 6, 1, 8, 90, False),
        ("gw", "b", LOWEST, 0, 9, 600, False),
        ("gw", "b", HIGHEST, 0, 10, 600, False),
        ("gw", "b", HIGHEST, 0, 11, 600, False),
    ]
    made, twice = after(spark, before, arrived)
    assert made == [
        ("gw", "a", 1, 6, 90, 550),
        ("gw", "b", LOWEST, LOWEST, 5, 600),
        ("gw", "b", HIGHEST, HIGHEST, 600, 600),
    ]
    assert twice == [9, 11]


def test_a_readable_copy_goes_before_one_that_is_not(spark: SparkSession) -> None:
    arrived: list[Arrived] = [("gw", "a", 1, 0, 1, 50, True), ("gw", "a", 1, 0, 2, 50, False)]
    assert after(spark, intervals(spark), arrived)[1] == [1]


def test_gaps_are_told_when_old_enough_with_their_cause(spark: SparkSession) -> None:
    minute_ms = 60_000
    seen = intervals(
        spark,
        ("gw", "begins late", 4, 9, 100 * minute_ms, 101 * minute_ms),
        ("gw", "begins late", 12, 12, 102 * minute_ms, 102 * minute_ms),
        ("gw", "fresh gap", 1, 3, 100 * minute_ms, 100 * minute_ms),
        ("gw", "fresh gap", 5, 6, 110 * minute_ms, 110 * minute_ms),
        ("gw", "old", 3, 7, 50 * minute_ms, 52 * minute_ms),
        ("gw", "whole", 1, 7, 50 * minute_ms, 52 * minute_ms),
    )
    loss = seqs.Loss(
        kafka_partition=0, first_offset=0, last_offset=9, resumed_ms=50 * minute_ms, topic_id="t"
    )
    found = seqs.gaps(seen, 105 * minute_ms, [loss]).orderBy("incarnation", "first_seq").collect()
    assert [tuple(row)[1:] for row in found] == [
        ("begins late", 1, 3, 3, 100 * minute_ms, Cause.LOST),
        ("begins late", 10, 11, 2, 102 * minute_ms, Cause.LOST),
        ("old", 1, 2, 2, 50 * minute_ms, Cause.RETENTION),
    ]


def test_what_comes_late_closes_its_gap_and_what_is_forgotten_keeps_it(spark: SparkSession) -> None:
    told = spark.createDataFrame(
        [("gw", "here", 4, 4, 1, 50, "lost"), ("gw", "gone", 2, 3, 2, 50, "lost")], GAPS
    )
    arrived: list[Arrived] = [("gw", "here", 4, 0, 1, 90, False)]
    made, _ = after(spark, intervals(spark, ("gw", "here", 1, 3, 1, 1), ("gw", "here", 5, 9, 2, 2)), arrived)
    seen = intervals(spark, *made)
    table = seqs.with_final(seqs.gaps(seen, 1000), told, seen)
    assert [tuple(row)[1:4] for row in table.collect()] == [("gone", 2, 3)]


def test_who_was_silent_is_forgotten_as_a_whole(spark: SparkSession) -> None:
    seen = intervals(spark, ("gw", "a", 1, 3, 1, 10), ("gw", "a", 5, 6, 11, 20), ("gw", "b", 1, 3, 1, 19))
    kept = seqs.remembered(seen, 20).collect()
    assert sorted(tuple(row)[1:4] for row in kept) == [("a", 1, 3), ("a", 5, 6)]
