"""The verdict on a soak's samples: what grew, by the same statistic whether a leak was injected or not. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tests.soak.plan import MOST_EACH_PER_H, MOST_MB_PER_H, REMEMBERS
from tests.soak.sampling import Sample, column
from tests.soak.trend import Trend, theil_sen, thinned, trend

CONFIDENCE: Final = 0.975
_POINTS: Final = 100
LIMITS: Final = {
    "rss_mb": MOST_MB_PER_H,
    "descriptors": MOST_EACH_PER_H,
    "threads": MOST_EACH_PER_H,
    "tasks": MOST_EACH_PER_H,
}


@dataclass(frozen=True, slots=True)
class Growth:
    """One quantity per hour after the warm-up."""

    quantity: str
    trend: Trend
    most_per_h: float

    @property
    def is_good(self) -> bool:
        return self.trend.upper <= self.most_per_h

    def __str__(self) -> str:
        mark = "ok" if self.is_good else "GROWS"
        return (
            f"{mark:5} {self.quantity}: {self.trend.slope:+.2f} an hour, below {self.trend.upper:+.2f} "
            f"(limit {self.most_per_h:g})"
        )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self.trend), "most_per_h": self.most_per_h, "is_good": self.is_good}


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """Each quantity's trend after the warm-up. Raises ValueError for too few samples."""
    warm = after_warm_up(samples)
    return [
        Growth(quantity, trend(*_points(warm, column(warm, quantity)), confidence=CONFIDENCE), most)
        for quantity, most in LIMITS.items()
    ]


def rss_mb_per_h_each(samples: Sequence[Sample]) -> list[float]:
    """Each process' slope after the warm-up, in the order in which they were started; nothing if one was replaced."""
    warm = after_warm_up(samples)
    rows = [[float(mb) for mb in one.rss_mb_each.split()] for one in warm]
    if len({len(row) for row in rows}) > 1:
        return []
    return [round(theil_sen(*_points(warm, values)), 2) for values in zip(*rows, strict=True)]


def _points(samples: Sequence[Sample], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return hours and values of a trend: some hundred medians."""
    hours = [one.seconds / 3600 for one in samples]
    return thinned(hours, values, (hours[-1] - hours[0]) / _POINTS)


def after_warm_up(samples: Sequence[Sample]) -> list[Sample]:
    """What came after everything had been forgotten once. Raises ValueError for too few samples."""
    if len(samples) < REMEMBERS * 2:
        raise ValueError(f"{len(samples)} samples are too few")
    return [one for one in samples if one.seconds >= samples[-1].seconds / REMEMBERS]


def cores_of(samples: Sequence[Sample]) -> float:
    """The share of a core that broker, gateway, clients and the soak took together after the warm-up."""
    first, *_, last = after_warm_up(samples)
    return (last.all_cpu_s - first.all_cpu_s) / (last.seconds - first.seconds)


def lateness_ms(samples: Sequence[Sample]) -> dict[str, float]:
    """The mean lateness of the event loops by cause, in each third of the time after the warm-up."""
    warm = after_warm_up(samples)
    third = len(warm) // 3
    found = {}
    for number, name in enumerate(("first", "second", "last")):
        before, after = warm[number * third], warm[min((number + 1) * third, len(warm) - 1)]
        ticks = max(1, after.late_ticks - before.late_ticks)
        found[f"busy_{name}"] = round(1e3 * (after.late_busy_s - before.late_busy_s) / ticks, 3)
        found[f"no_core_{name}"] = round(1e3 * (after.late_no_core_s - before.late_no_core_s) / ticks, 3)
    return found
