"""Precision, recall and their intervals against known values, and what is said to be taken for what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from pidgate.findings import families as families_of
from pidgate.pipeline.offenders.evaluation import accuracy, confusion, wilson
from pidgate.pipeline.offenders.places import family

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


LOOP, ERROR, BATCH, STEADY = "restart_loop", "producer_per_error", "producer_per_batch", "steady"


def sets(spark: SparkSession, **patterns: list[str]) -> DataFrame:
    rows = [(user, pattern) for user, several in patterns.items() for pattern in several]
    return spark.createDataFrame(rows, "user string, pattern string")


def test_wilsons_intervals_are_those_of_the_books(spark: SparkSession) -> None:
    """Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    known = [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]
    cases = spark.createDataFrame(known, "part bigint, whole bigint, low double, high double")
    low, high = wilson(f.col("part"), f.col("whole"))
    for row in cases.select("low", "high", low.alias("found_low"), high.alias("found_high")).collect():
        assert row["found_low"] == pytest.approx(row["low"], abs=5e-5)
        assert row["found_high"] == pytest.approx(row["high"], abs=5e-5)


def test_precision_and_recall_are_counted_by_user(spark: SparkSession) -> None:
    labels = sets(spark, a=[LOOP], b=[LOOP, STEADY], c=[LOOP], d=[BATCH], e=[STEADY])
    found = sets(spark, a=[LOOP], b=[LOOP, STEADY], c=[ERROR], d=[LOOP], e=[STEADY], nobody=[BATCH])
    rows = {row["pattern"]: row for row in accuracy(found, labels).collect()}
    loop = rows[LOOP]
    assert (loop["users"], loop["found"], loop["true_positives"]) == (3, 3, 2)
    assert (loop["precision"], loop["recall"]) == (2 / 3, 2 / 3)
    assert loop["precision_low"] == pytest.approx(0.2077, abs=5e-5)
    assert loop["precision_high"] == pytest.approx(0.9385, abs=5e-5)
    assert (rows[STEADY]["precision"], rows[STEADY]["recall"]) == (1.0, 1.0)
    assert (rows[BATCH]["found"], rows[BATCH]["precision"], rows[BATCH]["recall"]) == (0, None, 0.0)
    assert (rows[ERROR]["precision"], rows[ERROR]["recall"]) == (0.0, None)
    assert len(rows) == 12


def test_the_confusion_says_what_is_taken_for_what(spark: SparkSession) -> None:
    labels = sets(spark, a=[LOOP, STEADY], b=[LOOP, STEADY], c=[BATCH], d=[STEADY])
    found = sets(spark, a=[LOOP, STEADY], b=[ERROR, STEADY], c=[], d=[STEADY, BATCH])
    rows = {(row["actual"], row["predicted"]): row["users"] for row in confusion(found, labels).collect()}
    assert rows == {
        (LOOP, LOOP): 1,
        (STEADY, STEADY): 3,
        (LOOP, ERROR): 1,
        (BATCH, "nothing"): 1,
        ("nothing", BATCH): 1,
    }


def test_a_family_is_a_name_without_what_counts_or_was_drawn(spark: SparkSession) -> None:
    families = {
        "producer-17": "producer-*",
        "app7": "app*",
        "a-7f9c-x2k4q": "a-*-*",
        "web-hqzvk": "web-*",
        "web-nr899": "web-*",
        "web-6d4cf56db6-hqzvk": "web-*-*",
        "550e8400-e29b-41d4-a716-446655440000": "*",
        "billing": "billing",
    }
    columns = [family(f.lit(client_id)) for client_id in families]
    assert list(spark.range(1).select(*columns).collect()[0]) == list(families.values())
    assert list(map(families_of.family, families)) == list(families.values())
