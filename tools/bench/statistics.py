"""Medians, percentiles and their spread. Pure arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` (0..1] of the values do not exceed (nearest rank).

    Raises ValueError when there is none.
    """
    if not sorted_values:
        raise ValueError("no values")
    rank = -int(-share * len(sorted_values) // 1)
    return sorted_values[max(0, min(len(sorted_values), rank) - 1)]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some runs, with the least and the greatest of them."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of at least one value."""
        return cls(median(values), min(values), max(values))

    def shown(self, digits: int) -> str:
        """The median, with the least and the greatest in brackets."""
        return f"{self.median:.{digits}f} ({self.least:.{digits}f}-{self.greatest:.{digits}f})"


def ratios(values: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Each value by the baseline's value of the same run: what disturbs both of a run cancels out.

    Of a baseline that is not above nothing all is infinitely often as much.
    """
    return [value / base if base > 0 else math.inf for value, base in zip(values, baseline, strict=True)]


def differences(values: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Each value less the baseline's value of the same run."""
    return [value - base for value, base in zip(values, baseline, strict=True)]


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return an interval that holds the true median with at least `confidence`, whatever the distribution.

    By order statistics: the narrowest symmetric pair of the sorted values. Raises ValueError for fewer than six
    values at 95 %, of which even the least and the greatest do not promise it.
    """
    ordered, count = sorted(values), len(values)
    outside, pair = 0.0, None
    for rank in range(count // 2):
        # The chance that at most `rank` values lie below the median, on either side.
        outside += 2 * math.comb(count, rank) / 2**count
        if 1 - outside < confidence:
            break
        pair = ordered[rank], ordered[count - 1 - rank]
    if pair is None:
        raise ValueError(f"{count} values are too few for an interval of {confidence:.0%}")
    return pair
