"""The slope of a soak and its bound: rotations, outliers, neighbours that resemble each other, with a leak or not."""

import random

from tests.soak.trend import theil_sen, trend

LIMIT_MB_PER_H = 2.0
MINUTES = 100


def rss_mb(leak_mb_per_h: float, seed: int, *, outliers: bool = False) -> list[float]:
    """RSS by the minute: a saw of 3 MB as filters rotate, noise that lasts for minutes, a leak."""
    dice = random.Random(seed)
    noise, values = 0.0, []
    for minute in range(MINUTES):
        noise = 0.8 * noise + dice.gauss(0.0, 0.3)
        values.append(200 + noise + 3 * (minute % 5) / 5 + leak_mb_per_h * minute / 60)
    for minute in range(0, MINUTES, 17) if outliers else ():
        values[minute] += 40
    return values


def lasting_noise(seed: int, count: int) -> list[float]:
    dice = random.Random(seed)
    values = [0.0]
    while len(values) < count:
        values.append(0.9 * values[-1] + dice.gauss(0.0, 1.0))
    return values


HOURS = [minute / 60 for minute in range(MINUTES)]


def test_a_slope_is_that_of_the_line() -> None:
    assert theil_sen([0, 1, 3, 4], [5, 7, 11, 13]) == 2


def test_what_does_not_grow_is_below_the_limit() -> None:
    bounds = [trend(HOURS, rss_mb(0, seed), rounds=200).upper for seed in range(5)]
    assert sum(bound <= LIMIT_MB_PER_H for bound in bounds) >= 4, bounds


def test_a_leak_above_the_limit_is_caught() -> None:
    found = [trend(HOURS, rss_mb(4, seed), rounds=200) for seed in range(5)]
    assert all(one.upper > LIMIT_MB_PER_H for one in found), found
    assert all(3 < one.slope < 5 for one in found), found


def test_the_bound_holds_for_neighbours_that_resemble_each_other() -> None:
    """Single points drawn at random would promise too much: that mutant is above its bound more often."""
    times = [float(n) for n in range(40)]
    series = [lasting_noise(seed, len(times)) for seed in range(40)]
    kept = {
        block: sum(trend(times, values, block=block, rounds=60).upper >= 0 for values in series)
        for block in (10, 1)
    }
    assert kept[10] >= 0.75 * len(series), kept
    assert kept[1] < kept[10], kept
