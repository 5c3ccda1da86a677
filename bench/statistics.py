"""Medians, percentiles and their spread. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0..1] of the values do not exceed (nearest rank)."""
    if not sorted_values:
        raise ValueError("no values")
    rank = -int(-share * len(sorted_values) // 1)
    return sorted_values[max(0, min(len(sorted_values), rank) - 1)]


def median(values: Sequence[float]) -> float:
    """The middle value; the mean of the two middle ones when their number is even."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


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


def ratios(values: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Each value by the baseline's value of the same run: what disturbs both of a run cancels out."""
    return [value / base for value, base in zip(values, baseline, strict=True)]


def differences(values: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Each value less the baseline's value of the same run."""
    return [value - base for value, base in zip(values, baseline, strict=True)]
