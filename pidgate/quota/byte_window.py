"""Bytes over the last seconds, exactly as Kafka counts them: Sensor, Rate and SampledStat of
org.apache.kafka.common.metrics, in integers.

A sample begins with the first record after the one before is full (`sample_ms` old), and is forgotten
`samples` x `sample_ms` after its last record. The rate is the sum of all samples over the time since the oldest began;
what is missing of `samples` - 1 full ones is taken for samples in which nothing was recorded.

Knows no quota and no clock.
"""

from __future__ import annotations

from collections import deque
from typing import Final

Sample = tuple[int, int, int]
"""Begin, last record (monotonic ms), and bytes."""


class Window:
    """Samples. A time before the last one seen is taken for that one."""

    __slots__ = (
        "_current",
        "_expire_ms",
        "_last_ms",
        "_older",
        "_sample_ms",
        "oldest_ms",
        "start_ms",
        "total",
    )

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._sample_ms = sample_ms
        self._expire_ms = samples * sample_ms
        self._older: deque[Sample] = deque()
        self.total = 0
        """Bytes of all samples that are remembered, as of the last record."""
        self.start_ms, self._last_ms, self._current = _NOTHING
        """Begin of the sample being filled."""
        self.oldest_ms = self.start_ms
        """Begin of the oldest sample."""

    @property
    def last_ms(self) -> int:
        """Time of the last record."""
        return self._last_ms

    def samples(self) -> list[Sample]:
        """Everything that is remembered, oldest first."""
        return [*self._older, (self.start_ms, self._last_ms, self._current)]

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count `size_bytes`; then `total` and `oldest_ms` are up to date."""
        if now_ms < self._last_ms:
            now_ms = self._last_ms
        if now_ms - self.start_ms >= self._sample_ms:
            self._older.append((self.start_ms, self._last_ms, self._current))
            self.start_ms = now_ms
            self._current = 0
            self._forget(now_ms)
        self._current += size_bytes
        self.total += size_bytes
        self._last_ms = now_ms
        older = self._older
        if older and now_ms - older[0][1] >= self._expire_ms:
            self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        older = self._older
        while older and now_ms - older[0][1] >= self._expire_ms:
            self.total -= older.popleft()[2]
        self.oldest_ms = older[0][0] if older else self.start_ms

    def at(self, now_ms: int) -> tuple[int, int | None]:
        """Return the total, and the begin of the oldest sample (None: empty), at a time at which nothing is recorded.
        Changes nothing: reading a metric must not move a window.
        """
        live = [sample for sample in self.samples() if now_ms - sample[1] < self._expire_ms]
        return sum(sample[2] for sample in live), live[0][0] if live else None


_NOTHING: Final[Sample] = (-(1 << 62), -(1 << 62), 0)
"""Before any time: what comes before the first sample is full and forgotten."""


def window_ms(oldest_ms: int, now_ms: int, samples: int, sample_ms: int) -> int:
    """Return the divisor of a sum (Rate.windowSize): at least `samples` - 1 full samples."""
    elapsed_ms = max(0, now_ms - oldest_ms)
    missing = samples - 1 - elapsed_ms // sample_ms
    return elapsed_ms + missing * sample_ms if missing > 0 else elapsed_ms


def throttle_ms(total_bytes: int, over_ms: int, rate_bytes_per_s: int) -> int:
    """QuotaUtils.throttleTime: (O - T) / T x W, rounded half up; 0 at or below the bound. It is not capped.

    With O = total x 1000 / W that is (total x 1000 - T x W) / T, so no fraction is needed.
    """
    excess = total_bytes * 1_000 - rate_bytes_per_s * over_ms
    return 0 if excess <= 0 else (2 * excess + rate_bytes_per_s) // (2 * rate_bytes_per_s)
