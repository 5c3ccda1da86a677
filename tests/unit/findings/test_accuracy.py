"""Precision, recall and their intervals against known values, and the confusion of patterns."""

from __future__ import annotations

import pytest

from pidgate.findings.accuracy import accuracy, confusion, wilson
from pidgate.findings.rules import PATTERNS

LOOP, ERROR, BATCH, STEADY = "restart_loop", "producer_per_error", "producer_per_batch", "steady"


def pairs(**patterns: list[str]) -> set[tuple[str, str]]:
    return {(user, pattern) for user, several in patterns.items() for pattern in several}


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_intervals_are_those_of_newcombe_1998(part: int, whole: int, low: float, high: float) -> None:
    assert wilson(part, whole) == pytest.approx((low, high), abs=5e-5)


def test_precision_and_recall_are_counted_by_user() -> None:
    labels = pairs(a=[LOOP], b=[LOOP, STEADY], c=[LOOP], d=[BATCH], e=[STEADY])
    found = pairs(a=[LOOP], b=[LOOP, STEADY], c=[ERROR], d=[LOOP], e=[STEADY], unlabelled=[BATCH])
    rows = {row["pattern"]: row for row in accuracy(found, labels, PATTERNS)}
    loop = rows[LOOP]
    assert (loop["users"], loop["found"], loop["true_positives"]) == (3, 3, 2)
    assert (loop["precision"], loop["recall"]) == (2 / 3, 2 / 3)
    assert (loop["precision_low"], loop["precision_high"]) == pytest.approx((0.2077, 0.9385), abs=5e-5)
    assert (rows[STEADY]["precision"], rows[STEADY]["recall"]) == (1.0, 1.0)
    assert (rows[BATCH]["found"], rows[BATCH]["precision"], rows[BATCH]["recall"]) == (0, None, 0.0)
    assert (rows[ERROR]["precision"], rows[ERROR]["recall"]) == (0.0, None)
    assert set(rows) == set(PATTERNS)


def test_the_confusion_pairs_missed_labels_with_wrong_findings() -> None:
    labels = pairs(a=[LOOP, STEADY], b=[LOOP, STEADY], c=[BATCH], d=[STEADY])
    found = pairs(a=[LOOP, STEADY], b=[ERROR, STEADY], d=[STEADY, BATCH])
    rows = {(row["actual"], row["predicted"]): row["users"] for row in confusion(found, labels)}
    assert rows == {
        (LOOP, LOOP): 1,
        (STEADY, STEADY): 3,
        (LOOP, ERROR): 1,
        (BATCH, "nothing"): 1,
        ("nothing", BATCH): 1,
    }
