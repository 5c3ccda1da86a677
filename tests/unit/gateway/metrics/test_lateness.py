"""The event loop's lateness, and its cause: a timer of a real loop, a clock that stands still or jumps as set."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from pidgate.gateway.metrics.core_taken import CoreTaken
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.metrics.lateness import PERIOD_S, LatenessWatch

SPINS = "while True: pass"


class Timers:
    """What the watch asks of its loop, run by hand."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.now_s = 100.0
        self.counters = Counters()
        self.counters.connections_open = 1
        self.without_core_s = 0.0
        self.watch = LatenessWatch(
            self.loop, self.counters, lambda late_s: self.without_core_s, lambda: self.now_s
        )
        self.watch.start()

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.watch._tick()

    def close(self) -> None:
        self.watch.stop()
        self.loop.close()


def test_what_had_no_core_was_not_busy() -> None:
    timers = Timers()
    timers.without_core_s = 0.25
    with capture_logs() as lines:
        timers.passes(PERIOD_S + 0.3)  # 50 ms of work
        timers.passes(PERIOD_S + 0.03)  # waited for longer than it was late: some of it before it was due
    timers.close()
    counters = timers.counters
    assert counters.late_busy.sum_s == pytest.approx(0.05)
    assert counters.late_without_core.sum_s == pytest.approx(0.28)
    assert sum(counters.late_busy.counts) == sum(counters.late_without_core.counts) == 2
    assert counters.late_busy.counts[0] == 1, "the second was not late at all but for its core"
    assert [(line["stalled_ms"], line["without_core_ms"]) for line in lines] == [(300, 250)]


def test_what_clients_notice_is_told_and_summed() -> None:
    timers = Timers()
    with capture_logs() as lines:
        timers.passes(PERIOD_S + 0.09)
        timers.passes(PERIOD_S + 0.25)
    timers.close()
    assert [(line["event"], line["stalled_ms"]) for line in lines] == [("event_loop_stalled", 250)]
    assert timers.counters.stalls == 1
    assert timers.counters.stalled_seconds == pytest.approx(0.25)


@contextmanager
def one_core_for(rivals: int) -> Iterator[None]:
    """This thread on one core, with so many others that want it all the time."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    spinning = [subprocess.Popen([sys.executable, "-c", SPINS]) for _ in range(rivals)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
        os.sched_setaffinity(0, cores)


def counted_after(work_s: float) -> Counters:
    """Keep the loop from its timer for so much processor time, then let it run twice."""
    counters = Counters()
    counters.connections_open = 1
    loop = asyncio.new_event_loop()
    watch = LatenessWatch(loop, counters, CoreTaken().since_last_s)
    watch.start()
    until_s = time.thread_time() + work_s
    while time.thread_time() < until_s:
        pass
    while sum(counters.late_busy.counts) < 2:
        loop.run_until_complete(asyncio.sleep(0))
    watch.stop()
    loop.close()
    return counters


def test_a_loop_that_is_kept_busy_is_seen_and_the_timer_goes_on() -> None:
    counters = counted_after(2 * PERIOD_S)
    assert counters.late_busy.sum_s + counters.late_without_core.sum_s >= PERIOD_S * 0.9


def test_a_core_that_others_take_is_told_from_work() -> None:
    with one_core_for(rivals=3):
        time.sleep(0.3)
        counters = counted_after(2 * PERIOD_S)
    # Three of four turns are the others'; less where the kernel lets the newcomer go first.
    assert counters.late_without_core.sum_s > PERIOD_S
    assert counters.late_without_core.sum_s > counters.late_busy.sum_s
