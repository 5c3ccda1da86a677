"""Time in equal steps, few enough to draw, and counts per step. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
_MOST_STEPS = 1_500
_BY_MINUTE_UP_TO_MS = 6 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Span:
    """`steps` of step_ms each from start_ms."""

    start_ms: int
    step_ms: int
    steps: int

    def dense(self, counts: Mapping[int, float]) -> list[float]:
        """Return a value per step by its start time; 0 if missing."""
        return [counts.get(self.start_ms + n * self.step_ms, 0) for n in range(self.steps)]

    @property
    def unit(self) -> str:
        """Name of a step in rates_by_time."""
        return {MINUTE_MS: "minute", HOUR_MS: "hour"}.get(self.step_ms, "day")

    @property
    def step_words(self) -> str:
        """Return the step as text: minute, hour, day, 3 days."""
        days = self.step_ms // DAY_MS
        return f"{days} days" if days > 1 else self.unit


def span_between(first_ms: int, last_ms: int, *, finest_ms: int = MINUTE_MS) -> Span:
    """Return steps in UTC: minutes for some hours, hours for two months, otherwise one or more days."""
    long_ms = last_ms - first_ms
    if finest_ms <= MINUTE_MS and long_ms <= _BY_MINUTE_UP_TO_MS:
        step_ms = MINUTE_MS
    elif long_ms <= _MOST_STEPS * HOUR_MS:
        step_ms = HOUR_MS
    else:
        step_ms = DAY_MS * -(-long_ms // (_MOST_STEPS * DAY_MS))
    start_ms = first_ms - first_ms % step_ms
    return Span(start_ms, step_ms, (last_ms - start_ms) // step_ms + 1)


def running(values: Sequence[float], steps: int) -> list[float]:
    """Return the sum of each value and those before it, `steps` in total."""
    sums = [0, *accumulate(values)]
    return [sums[n] - sums[max(0, n - steps)] for n in range(1, len(sums))]
