"""Slope of a series by Theil-Sen, with an upper bound by a moving block bootstrap. Pure arithmetic.

The median of the slopes of all pairs is not moved by a minority of outliers, such as a collection of garbage that came
late. What is left about the line is no noise: filters rotate, buffers fill and empty, and neighbours resemble each
other. Single residuals drawn at random would lose that and promise too much; whole blocks of them keep it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from tools.bench.statistics import percentile

_LEAST_POINTS: Final = 10


@dataclass(frozen=True, slots=True)
class Trend:
    """A slope per unit of time, and the bound that it is below with the confidence asked for."""

    slope: float
    upper: float
    block: int
    """Points in a block of the bootstrap."""


def theil_sen(times: Sequence[float], values: Sequence[float]) -> float:
    """The median slope of all pairs of points. Raises ValueError for fewer than two moments."""
    slopes = [
        (later - value) / (at - time)
        for index, (time, value) in enumerate(zip(times, values, strict=True))
        for at, later in zip(times[index + 1 :], values[index + 1 :], strict=True)
        if at != time
    ]
    if not slopes:
        raise ValueError("a slope needs points at two moments")
    return median(slopes)


def trend(
    times: Sequence[float],
    values: Sequence[float],
    *,
    confidence: float = 0.95,
    block: int | None = None,
    rounds: int = 500,
    seed: int = 1,
) -> Trend:
    """The slope, and its one-sided upper bound. Raises ValueError for fewer than ten points.

    `block`: points that are drawn together, by default the root of their number.
    """
    count = len(values)
    if count < _LEAST_POINTS:
        raise ValueError(f"{count} points are too few for a trend, {_LEAST_POINTS} are needed")
    slope = theil_sen(times, values)
    residuals = [value - slope * time for time, value in zip(times, values, strict=True)]
    block = block or round(count**0.5)
    dice = random.Random(seed)
    slopes = sorted(theil_sen(times, _drawn(residuals, block, dice)) for _ in range(rounds))
    # The residuals' own slope is 0: what those drawn have is how far off a slope of so many points may be.
    return Trend(slope, slope + percentile(slopes, confidence), block)


def _drawn(residuals: Sequence[float], block: int, dice: random.Random) -> list[float]:
    drawn: list[float] = []
    while len(drawn) < len(residuals):
        first = dice.randrange(len(residuals) - block + 1)
        drawn += residuals[first : first + block]
    return drawn[: len(residuals)]


def thinned(
    times: Sequence[float], values: Sequence[float], period: float
) -> tuple[list[float], list[float]]:
    """The medians of each period of so long, at its first moment."""
    groups: dict[int, list[tuple[float, float]]] = {}
    for time, value in zip(times, values, strict=True):
        groups.setdefault(int(time // period), []).append((time, value))
    return (
        [group[0][0] for group in groups.values()],
        [median(value for _, value in group) for group in groups.values()],
    )
