"""The event loop's lateness: a timer of a real loop, a clock that stands still or jumps as told."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from pidgate.gateway.metrics.counters import LATENESS_BOUNDS_S, Counters
from pidgate.gateway.metrics.lateness import PERIOD_S, LatenessWatch


class Timers:
    """What the watch asks of its loop, run by hand."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.now_s = 100.0
        self.counters = Counters()
        self.watch = LatenessWatch(self.loop, self.counters, lambda: self.now_s)
        self.watch.start()

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.watch._tick()

    def close(self) -> None:
        self.watch.stop()
        self.loop.close()


def bucket_of(late_s: float) -> int:
    timers = Timers()
    timers.passes(PERIOD_S + late_s)
    timers.close()
    assert sum(timers.counters.lateness) == 1
    return timers.counters.lateness.index(1)


@pytest.mark.parametrize(
    ("late_s", "bucket"), [(-0.001, 0), (0.0, 0), (0.0009, 0), (0.0015, 1), (0.006, 3), (0.7, 9), (2.5, 10)]
)
def test_lateness_is_counted_below_the_next_bound(late_s: float, bucket: int) -> None:
    assert bucket_of(late_s) == bucket


def test_each_wait_is_measured_from_the_one_before() -> None:
    timers = Timers()
    timers.passes(PERIOD_S + 0.3)
    timers.passes(PERIOD_S + 0.03)
    timers.close()
    assert timers.counters.lateness_seconds == pytest.approx(0.33)
    assert timers.counters.lateness[LATENESS_BOUNDS_S.index(0.05)] == 1


def test_what_clients_notice_is_told_and_summed() -> None:
    timers = Timers()
    with capture_logs() as lines:
        timers.passes(PERIOD_S + 0.09)
        timers.passes(PERIOD_S + 0.25)
    timers.close()
    assert [(line["event"], line["stalled_ms"]) for line in lines] == [("event_loop_stalled", 250)]
    assert timers.counters.stalls == 1
    assert timers.counters.stalled_seconds == pytest.approx(0.25)


def test_a_loop_that_is_kept_busy_is_seen_and_the_timer_goes_on() -> None:
    counters = Counters()
    loop = asyncio.new_event_loop()
    watch = LatenessWatch(loop, counters)
    watch.start()
    until_s = time.monotonic() + 2 * PERIOD_S
    while time.monotonic() < until_s:
        pass
    while sum(counters.lateness) < 2:
        loop.run_until_complete(asyncio.sleep(0))
    watch.stop()
    loop.close()
    assert counters.lateness_seconds >= PERIOD_S * 0.9
