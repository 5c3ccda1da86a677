"""Nearest-rank percentiles, medians, ratios run by run."""

import pytest

from tools.bench.statistics import Spread, differences, median_interval, percentile, ratios


@pytest.mark.parametrize(
    ("share", "expected"), [(0.001, 1), (0.5, 50), (0.501, 51), (0.99, 99), (0.999, 100), (1.0, 100)]
)
def test_percentile_is_the_nearest_rank(share: float, expected: int) -> None:
    assert percentile(range(1, 101), share) == expected


def test_spread_holds_the_extremes() -> None:
    assert Spread.of([2.0, 9.0, 1.0]) == Spread(2.0, 1.0, 9.0)


def test_ratios_compare_within_a_run() -> None:
    # The second run was twice as slow for both: that is the machine's doing, not the proxy's.
    assert ratios([12, 24], [10, 20]) == [1.2, 1.2]


def test_differences_compare_within_a_run() -> None:
    assert differences([1.5, 6.0], [1.0, 5.0]) == [0.5, 1.0]


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (25, 8)])
def test_the_interval_of_the_median_is_that_of_the_tables(count: int, rank: int) -> None:
    # Conover, Practical Nonparametric Statistics, table of the sign test at 5 %.
    assert median_interval(list(range(count, 0, -1))) == (rank, count + 1 - rank)


def test_too_few_values_have_no_interval() -> None:
    with pytest.raises(ValueError, match="too few"):
        median_interval([1, 2, 3, 4, 5])
