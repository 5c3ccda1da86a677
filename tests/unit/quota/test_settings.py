"""What an operator may set, and how rates are rounded."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota, rate_milli


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(100, 100_000), (0, 0), (0.5, 500), (Fraction(1, 3), 333), (0.0001, 1), (2.0006, 2_001)],
)
def test_a_rate_is_rounded_to_thousandths_and_never_down_to_blocking(
    rate: float | Fraction, expected: int
) -> None:
    assert rate_milli(rate) == expected


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf"), float("-inf")])
def test_a_rate_is_finite_and_not_negative(rate: float) -> None:
    with pytest.raises(ValueError, match="a rate must"):
        rate_milli(rate)


@pytest.mark.parametrize(
    "settings",
    [
        {"window_ms": 0},
        {"burst": Fraction(0)},
        {"layers": 0},
        {"layers": 13},
        {"remember_ms": 3},
        {"false_positive_rate": 0.0},
        {"false_positive_rate": 1.0},
        {"max_throttle_ms": 99},
        {"max_live_ids": 0},
        {"queue": -1},
        {"sticky_entries": 0},
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        ProducerIdSettings(**settings)


def test_negative_rates_are_refused_everywhere() -> None:
    with pytest.raises(ValueError, match="producer_ids_rate_milli"):
        UserQuota(-1)
    with pytest.raises(ValueError, match="cluster_rate_milli"):
        Quotas(cluster_rate_milli=-1)


def test_nothing_is_enforced_unless_someone_says_so() -> None:
    assert Quotas().mode is Mode.OBSERVE
    assert Quotas().producer_ids.transactional is Mode.OBSERVE
    assert Quotas().default == UserQuota(None, None, False)


def test_a_slice_is_a_layers_part_of_the_time_to_remember() -> None:
    assert ProducerIdSettings().slice_ms == 6 * 3_600_000
