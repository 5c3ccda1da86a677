"""Histories are summed before shares are taken, so that one with few users of a pattern weighs little."""

from __future__ import annotations

import pytest

from tools.bench.detector import COUNTED, HELD_OUT_SEEDS, page, page_of_inputs, summed
from tools.bench.recommend_inputs import rate_to_judge


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


@pytest.mark.parametrize(
    ("action", "judged", "current", "rate"),
    [
        ("set", 12.0, 5.0, 12.0),
        ("set", None, 5.0, None),
        ("keep", 12.0, 5.0, 5.0),
        ("no_rate", 12.0, None, None),
    ],
)
def test_the_rate_that_is_judged_had_not_seen_the_judged_days(
    action: str, judged: float | None, current: float | None, rate: float | None
) -> None:
    assert rate_to_judge({"action": action, "judged_rate": judged, "current_rate": current}) == rate


def test_inputs_of_recommend_stand_side_by_side() -> None:
    counts = {"new_rates": 3, "rogue_ids": 200, "rogue_refused": 150, "healthy_ids": 40, "healthy_refused": 2}
    assert page_of_inputs({"findings": counts, "nobody": dict.fromkeys(counts, 0)}).splitlines()[2:] == [
        "| the findings of `offenders` (what users get) | 3 | 200 | 0.750 | 40 | 2 |",
        "| nobody: all are taken for healthy | 0 | 0 | - | 0 | 0 |",
    ]
