"""The quota that keeps a heap: the greatest rate for every user with which no broker dies, by running the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Holds = Callable[[Sequence[int]], Mapping[int, bool]]
"""Whether every broker lives under each of these rates (ids per window, for every user)."""

CANDIDATES = 8
"""Rates that are looked at in one pass over the data."""


def greatest_rate(holds: Holds, most: int, candidates: int = CANDIDATES) -> int | None:
    """The greatest rate from 1 to `most` that holds, to within 1 % below it; None: not even 1 does.

    A lower rate never lays more on a broker, so whatever is below a rate that holds does, too. Each pass runs the
    model for a few rates and leaves the gap between the last that holds and the first that does not.
    """
    low, high = 0, most + 1
    while high - low > 1 + low // 100:
        rates = _between(low, high, candidates)
        held = holds(rates)
        low = max((rate for rate in rates if held[rate]), default=low)
        high = min((rate for rate in rates if not held[rate] and rate > low), default=high)
    return low or None


def _between(low: int, high: int, candidates: int) -> list[int]:
    """Whole rates strictly between the two: by factors, as quotas are thought of, closing in evenly."""
    gap = high - low
    if gap - 1 <= candidates:
        return list(range(low + 1, high))
    if low == 0:
        step = high ** (1 / (candidates + 1))
        return sorted({min(max(round(step**n), 1), high - 1) for n in range(candidates + 1)} | {1})
    return sorted({low + round(gap * n / (candidates + 1)) for n in range(1, candidates + 1)})
