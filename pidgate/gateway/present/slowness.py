"""Which part is slow now: the gateway's event loop, a broker, or none of them."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from pidgate.gateway.metrics.counters import Counters

SPAN_MS: Final = 10_000
LATE_SHARE: Final = 0.1
"""Of the span. An idle process is late by less than a hundredth."""
SLOW_ANSWER_S: Final = 0.5
"""A broker answers the gateway's question from memory, within a few milliseconds."""


class LoopShare(NamedTuple):
    """Share of the last seconds in which the event loop was late: at work, and without a core."""

    busy: float
    no_core: float

    @property
    def is_slow(self) -> bool:
        return self.busy + self.no_core >= LATE_SHARE


class _Sample(NamedTuple):
    at_ms: int
    busy_s: float
    no_core_s: float


class Slowness:
    """Call `sample` once a second; `of_loop` and `slow_brokers` at any time."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._samples = deque([_Sample(0, 0.0, 0.0)])

    def sample(self, now_ms: int) -> None:
        """Note the present values."""
        self._samples.append(self._now(now_ms))
        while len(self._samples) > 2 and self._samples[1].at_ms <= now_ms - SPAN_MS:
            self._samples.popleft()

    def _now(self, now_ms: int) -> _Sample:
        return _Sample(now_ms, self._counters.late_busy.sum_s, self._counters.late_without_core.sum_s)

    def of_loop(self, now_ms: int) -> LoopShare:
        """Return how late the event loop was in the last seconds."""
        first, last = self._samples[0], self._now(now_ms)
        span_s = max(1_000, min(SPAN_MS, last.at_ms - first.at_ms)) / 1_000
        return LoopShare(
            min(1.0, (last.busy_s - first.busy_s) / span_s),
            min(1.0, (last.no_core_s - first.no_core_s) / span_s),
        )

    def slow_brokers(self) -> dict[int, float]:
        """Return the brokers that answered slowly, with seconds. Those that do not answer are not among them."""
        counters = self._counters
        return {
            node_id: answer_s
            for node_id, answer_s in sorted(counters.broker_answer_s.items())
            if answer_s >= SLOW_ANSWER_S and counters.broker_up.get(node_id)
        }
