"""Histories are summed before shares are taken, so that one with few users of a pattern weighs little."""

from __future__ import annotations

from bench.detector import COUNTED, HELD_OUT_SEEDS, page, summed


def row(pattern: str, *counts: int) -> dict[str, object]:
    return {"pattern": pattern, **dict(zip(COUNTED, counts, strict=True))}


def test_counts_of_histories_are_added() -> None:
    found = summed([row("steady", 10, 8, 8), row("cron_job", 0, 0, 0), row("steady", 2, 4, 2)])
    assert page(found).splitlines()[2:] == [
        "| cron_job | 0 | 0 | - | - |",
        "| steady | 12 | 12 | 0.833 | 0.833 |",
    ]


def test_three_seeds_are_held_out() -> None:
    assert len(set(HELD_OUT_SEEDS)) == 3
