"""The rule: two rates from a need, and what is done with them."""

from __future__ import annotations

from typing import Any

import pytest

from pidgate.pipeline.recommend.chosen import A_DAY_MS, Action, Asked, Lack, Need, choose

ASKED = Asked()


def user(**changed: Any) -> dict[str, Any]:
    """A rogue beside healthy ids, without a rate in force."""
    return {
        "current_rate": None,
        "cap_rate": 180.0,
        "mended_rate": 20.0,
        "ids": 28_854,
        "rogue_ids": 28_789,
        "healthy_refusals": 0,
        "exempt": False,
        "history_ms": 12 * A_DAY_MS,
        "days": 12,
        "seen_weekly": False,
        "now": None,
        **changed,
    }


def in_force(rate: float, *, refuses: int = 0, **changed: Any) -> dict[str, Any]:
    return user(current_rate=rate, now={"refused_healthy_ids": refuses}, **changed)


@pytest.mark.parametrize(
    ("need", "cap", "mended"),
    [
        (Need(330, 0, 1), 500, 10),
        (Need(120, 9, 10), 180, 20),
        (Need(24, 0, 4), 36, 10),
        (Need(300, 300, 5), 450, 450),
        (Need(16, 16, 21), 42, 42),
        (Need(30, 30, 0, growth=1.5), 68, 68),
        (Need(0, 0, 0), 10, 10),
    ],
)
def test_there_are_always_two_rates(need: Need, cap: float, mended: float) -> None:
    assert need.rates(1.5) == (cap, mended)


@pytest.mark.parametrize(
    ("of", "action", "rate"),
    [
        (user(), Action.SET, 180),
        (in_force(500), Action.SET, 180),
        (in_force(100), Action.KEEP, 100),
        (in_force(100, refuses=1), Action.SET, 180),
        (in_force(19), Action.SET, 180),
        (in_force(0), Action.KEEP, 0),
        (in_force(180, refuses=1), Action.KEEP, 180),
        (in_force(500, rogue_ids=0), Action.KEEP, 500),
    ],
)
def test_a_rate_in_force_stays_if_it_refuses_no_healthy_id_fits_a_deployment_and_bounds_the_rogue(
    of: dict[str, Any], action: Action, rate: float
) -> None:
    assert choose(of, ASKED) == (action, rate, None)


def test_after_mending_the_lower_rate_is_written() -> None:
    assert choose(user(), Asked(after_mending=True)) == (Action.SET, 20, None)
    assert choose(in_force(180), Asked(after_mending=True)) == (Action.SET, 20, None)


@pytest.mark.parametrize(
    ("of", "lack"),
    [
        (user(exempt=True), Lack.EXEMPT),
        (user(ids=0), Lack.IDS),
        (user(ids=19), Lack.IDS),
        (user(history_ms=A_DAY_MS // 24), Lack.HISTORY),
        (user(days=2), Lack.DAYS),
        (user(days=2, seen_weekly=True), Lack.DAYS),
        (user(healthy_refusals=7), Lack.ARRIVALS),
        (in_force(500, healthy_refusals=7), Lack.ARRIVALS),
    ],
)
def test_too_little_evidence_gives_no_rate(of: dict[str, Any], lack: Lack) -> None:
    assert choose(of, ASKED) == (Action.NONE, None, lack)


def test_refusals_may_raise_a_rate_and_weeks_count_for_who_comes_once_a_week() -> None:
    assert choose(in_force(10, refuses=348, healthy_refusals=4_176), ASKED)[0] is Action.SET
    assert choose(user(days=3, seen_weekly=True), ASKED)[0] is Action.SET
    assert choose(user(days=1), Asked(least_history_ms=3_600_000))[0] is Action.SET
