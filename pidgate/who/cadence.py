"""The beat of starts: one after another, or groups of them, at equal or doubling distances. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pidgate.who.bounded import quantile

FEWEST_BURSTS: Final = 5
SHORTEST_INTERVAL_MS: Final = 2_000
"""No process starts, produces and dies faster again and again; what does is one process opening producers."""
LONGEST_INTERVAL_MS: Final = 15 * 60_000
BURST_GAPS_MS: Final = (1_000, 5_000, 30_000)
"""Starts closer together than this are one start of several producers; tried one after another."""
EVEN_P90: Final = 1.5
"""Nine in ten intervals are at most this multiple of the median ..."""
EVEN_P10: Final = 0.5
"""... and at least this one. Starts by chance have a p90 of 3.3 medians and a p10 of 0.15."""
BACK_OFF_STEPS: Final = 3
"""So many intervals in a row grow, each about twice the one before ..."""
BACK_OFF_GROWTH: Final = (1.5, 3.0)
BACK_OFF_AFTER: Final = (0.8, 3.0)
"""... and later ones grow on, or stay at a cap."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """`bursts` starts of `per_burst` ids each (median), `interval_ms` apart (median)."""

    interval_ms: int
    bursts: int
    per_burst: int
    backing_off: bool = False


def cadence(starts_ms: Sequence[int]) -> Cadence | None:
    """Return the beat in these times (ascending); None: there is none, or too few."""
    for gap_ms in BURST_GAPS_MS:
        found = _cadence(starts_ms, gap_ms)
        if found is not None:
            return found
    return None


def bursts_of(starts_ms: Sequence[int], gap_ms: int) -> list[list[int]]:
    """Split times wherever the next one is more than `gap_ms` later."""
    bursts: list[list[int]] = []
    for start_ms in starts_ms:
        if bursts and start_ms - bursts[-1][-1] <= gap_ms:
            bursts[-1].append(start_ms)
        else:
            bursts.append([start_ms])
    return bursts


def _cadence(starts_ms: Sequence[int], gap_ms: int) -> Cadence | None:
    bursts = bursts_of(starts_ms, gap_ms)
    if len(bursts) < FEWEST_BURSTS:
        return None
    intervals = [later[0] - earlier[0] for earlier, later in pairwise(bursts)]
    sizes = sorted(len(burst) for burst in bursts)
    median = quantile(sorted(intervals), 0.5)
    per_burst = quantile(sizes, 0.5)
    if not max(SHORTEST_INTERVAL_MS, 2 * gap_ms) <= median <= LONGEST_INTERVAL_MS:
        return None
    if quantile(sizes, 0.9) > 2 * per_burst:
        return None
    if _is_even(sorted(intervals), median):
        return Cadence(median, len(bursts), per_burst)
    return Cadence(intervals[-1], len(bursts), per_burst, True) if _backs_off(intervals) else None


def _is_even(intervals: Sequence[int], median: int) -> bool:
    return quantile(intervals, 0.9) <= EVEN_P90 * median and quantile(intervals, 0.1) >= EVEN_P10 * median


def _backs_off(intervals: Sequence[int]) -> bool:
    growth = [later / max(1, earlier) for earlier, later in pairwise(intervals)]
    return len(growth) >= BACK_OFF_STEPS and all(
        least <= step <= most
        for number, step in enumerate(growth)
        for least, most in [BACK_OFF_GROWTH if number < BACK_OFF_STEPS else BACK_OFF_AFTER]
    )
