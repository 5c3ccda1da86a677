"""Lateness of the event loop: a periodic timer records its own delay in a histogram.

A request that arrives when the timer is due waits as long as the timer, so the histogram is a fair sample of
the cost of stalls. One timer in twenty meets a stall of 5 ms; every stall above PERIOD_S is met. The delay is
split: time in which this thread had no core (another process, the hypervisor) is not counted as the loop's
own work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pidgate.gateway.clock import monotonic_s, until_tick_s
from pidgate.gateway.logs import Event, LogLimit, logger
from pidgate.gateway.metrics.counters import Counters

log = logger()

PERIOD_S: Final = 0.1
"""While clients are connected. Without any, the timer comes with what is done once a second."""
STALL_S: Final = 0.1
"""Stalls from this length on are logged, because clients notice them."""


class LatenessWatch:
    """Call `start`, then `stop`.

    `clock` returns seconds. It is not the loop's clock, which is cached during a callback. `without_core_s`:
    see CoreTaken.since_last_s.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        counters: Counters,
        without_core_s: Callable[[float], float],
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        self._loop = loop
        self._counters = counters
        self._clock = clock
        self._without_core_s = without_core_s
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._lines = LogLimit()

    def start(self) -> None:
        period_s = PERIOD_S if self._counters.connections_open else until_tick_s(self._loop.time())
        self._due_s = self._clock() + period_s
        self._timer = self._loop.call_later(period_s, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        # The loop's timers count whole milliseconds and may fire up to one early.
        late_s = max(0.0, self._clock() - self._due_s)
        without_core_s = min(late_s, self._without_core_s(late_s))
        counters = self._counters
        counters.late_busy.observe(late_s - without_core_s)
        counters.late_without_core.observe(without_core_s)
        if late_s > STALL_S:
            counters.stalls += 1
            counters.stalled_seconds += late_s
            left_out = self._lines.take(None, round(self._clock() * 1000))
            if left_out is not None:
                log.warning(
                    Event.EVENT_LOOP_STALLED,
                    stalled_ms=round(late_s * 1000),
                    without_core_ms=round(without_core_s * 1000),
                    suppressed_count=left_out,
                )
        self.start()
