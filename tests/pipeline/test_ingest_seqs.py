"""Numbers that were seen, twice or never: against sets of numbers."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from pidgate.pipeline.ingest import seqs
from pidgate.pipeline.ingest.columns import ARRIVALS, GAPS, INTERVALS, Cause

Arrived = tuple[str | None, str | None, int | None, int, int, int, bool]
"""Gateway, incarnation, number; partition, offset, time of append; and whether it is a dead letter."""
Interval = tuple[str, str, int, int, int, int] | tuple[str, str, int, int, int, int, int]
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
NO_GAPS = GAPS.empty_table()


def intervals(*rows: Interval) -> pa.Table:
    return pa.Table.from_pylist(
        [{"heard": 0} | dict(zip(INTERVALS.names, row, strict=False)) for row in rows],
        INTERVALS,
    )


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def after(before: pa.Table, arrived: list[Arrived]) -> tuple[list[tuple[Any, ...]], list[int]]:
    """The intervals then, and the offsets of duplicates."""
    names = ("gateway_id", "incarnation", "seq", "kafka_partition", "kafka_offset", "seen_ms")
    told = [
        dict(zip(names, row, strict=False)) | {"reason": "malformed" if row[-1] else None} for row in arrived
    ]
    seen, twice = seqs.seen(
        before, pa.Table.from_pylist(told, ARRIVALS.append(pa.field("seen_ms", pa.int64())))
    )
    return sorted(row[:6] for row in rows_of(seen)), [
        row[4] for row, is_twice in zip(arrived, twice, strict=True) if is_twice
    ]


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if made and made[-1][1] + 1 == number:
            made[-1] = (made[-1][0], number)
        else:
            made.append((number, number))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_as_sets_would_have_it(seed: int) -> None:
    """Some processes, three batches, out of order, with repeats in and across batches, and at the ends of 64 bits."""
    chance = random.Random(seed)
    known = intervals()
    processes = [(gateway, of) for gateway in ("gw", "gw-2") for of in "abc"[: chance.randrange(1, 4)]]
    seen: dict[tuple[str, str], set[int]] = {one: set() for one in processes}
    numbers = [*range(1, chance.choice((5, 60, 200))), LOWEST, LOWEST + 1, -1, 0, HIGHEST - 1, HIGHEST]
    for _ in range(3):
        arrived: list[Arrived] = []
        repeated = []
        for offset in range(chance.randrange(150)):
            of, number = chance.choice(processes), chance.choice(numbers)
            arrived.append((*of, number, 0, offset, 1000 + offset, False))
            if chance.random() < 0.1:
                arrived.append((None, of[1], number, 1, offset, 1000, True))
                arrived.append((*of, None, 2, offset, 1000, True))
            if number in seen[of]:
                repeated.append(offset)
            seen[of].add(number)
        made, twice = after(known, arrived)
        assert twice == repeated
        assert [row[:4] for row in made] == [(*of, *run) for of in processes for run in runs(seen[of])]
        known = intervals(*made)


def test_times_of_an_interval_and_the_ends_of_64_bits() -> None:
    before = intervals(("gw", "a", 1, 4, 100, 400), ("gw", "b", LOWEST, LOWEST, 5, 5))
    arrived: list[Arrived] = [
        ("gw", "a", 5, 0, 7, 550, False),
        ("gw", "a", 6, 1, 8, 90, False),
        ("gw", "b", LOWEST, 0, 9, 600, False),
        ("gw", "b", HIGHEST, 0, 10, 600, False),
        ("gw", "b", HIGHEST, 0, 11, 600, False),
    ]
    made, twice = after(before, arrived)
    assert made == [
        ("gw", "a", 1, 6, 90, 550),
        ("gw", "b", LOWEST, LOWEST, 5, 600),
        ("gw", "b", HIGHEST, HIGHEST, 600, 600),
    ]
    assert twice == [9, 11]


def test_a_readable_copy_goes_before_one_that_is_not() -> None:
    arrived: list[Arrived] = [("gw", "a", 1, 0, 1, 50, True), ("gw", "a", 1, 0, 2, 50, False)]
    assert after(intervals(), arrived)[1] == [1]


def test_gaps_are_told_when_old_enough_with_their_cause() -> None:
    minute_ms = 60_000
    seen = intervals(
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
    found, *_ = seqs.settled(seen, NO_GAPS, [loss], 105 * minute_ms)
    assert [row[1:] for row in rows_of(found)] == [
        ("begins late", 1, 3, 3, 100 * minute_ms, Cause.LOST),
        ("begins late", 10, 11, 2, 102 * minute_ms, Cause.LOST),
        ("old", 1, 2, 2, 50 * minute_ms, Cause.RETENTION),
    ]


def test_what_comes_late_closes_its_gap_and_what_is_forgotten_keeps_it() -> None:
    told = pa.Table.from_pylist(
        [
            dict(zip(GAPS.names, row, strict=True))
            for row in (("gw", "here", 4, 4, 1, 50, "lost"), ("gw", "gone", 2, 3, 2, 50, "lost"))
        ],
        GAPS,
    )
    arrived: list[Arrived] = [("gw", "here", 4, 0, 1, 90, False)]
    made, _ = after(intervals(("gw", "here", 1, 3, 1, 1), ("gw", "here", 5, 9, 2, 2)), arrived)
    seen = intervals(*made)
    table, *_ = seqs.settled(seen, told, [], 1000)
    assert [row[1:4] for row in rows_of(table)] == [("gone", 2, 3)]


def test_forgotten_are_whole_processes_that_wrote_in_none_of_the_latest_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[Interval] = [
        ("gw", "a", 1, 3, 1, 10, 5),
        ("gw", "a", 5, 6, 11, 20, 7),
        ("gw", "b", 1, 3, 1, 9_999, 6),
        ("gw", "c", 1, 3, 1, 10, 7),
    ]
    kept = {}
    for most in range(5):
        monkeypatch.setattr(seqs, "MOST_INTERVALS", most)
        *_, remembered = seqs.settled(intervals(*rows), NO_GAPS, [], 0)
        kept[most] = sorted({row[1] for row in rows_of(remembered)})
    assert kept == {0: [], 1: [], 2: ["a"], 3: ["a", "c"], 4: ["a", "b", "c"]}
    arrived = pa.Table.from_pylist(
        [{"gateway_id": "gw", "incarnation": "b", "seq": 4, "seen_ms": 1}],
        ARRIVALS.append(pa.field("seen_ms", pa.int64())),
    )
    after_8, _ = seqs.seen(intervals(*rows), arrived, 8)
    (of_b,) = [row for row in rows_of(after_8) if row[1] == "b"]
    assert of_b == ("gw", "b", 1, 4, 1, 9_999, 8)
