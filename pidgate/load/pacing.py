"""The schedule of due times, and an event loop that wakes up on time.

All due times are fixed before the first request, independent of the answers (open loop). Latency counts from
them: a generator that waits for an answer before it schedules the next request omits exactly the requests
that would have met a stall (coordinated omission).

epoll takes its timeout in milliseconds, and so do the timers of asyncio and uvloop. At 2,000 requests a
second each one would be sent half a millisecond late, more than a gateway adds. select takes microseconds,
and can wait for epoll.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import select
import selectors
from collections.abc import Callable, Iterator, Mapping

from pidgate.load.tally import Latency

_BEHIND_IN_A_ROW = 20
"""Batches handed out without a pause when the pacer is behind: answers must be read too."""

Due = tuple[float, str, int]
"""Seconds after the start, the kind of client, the number within its kind."""


def schedule(rates_per_s: Mapping[str, float], duration_s: float, seed: int) -> Iterator[Due]:
    """Yield all work due within `duration_s`, in order of time.

    Each kind has even intervals. Its first one starts at a random point within an interval, so that kinds of
    the same rate do not coincide.
    """
    dice = random.Random(seed)
    beats = [_beat(kind, rate, dice.random() / rate, duration_s) for kind, rate in rates_per_s.items()]
    return heapq.merge(*beats)


def _beat(kind: str, rate_per_s: float, first_s: float, duration_s: float) -> Iterator[Due]:
    for number in itertools.count():
        # Counted from the start: a sum of intervals would drift.
        due_s = first_s + number / rate_per_s
        if due_s >= duration_s:
            return
        yield due_s, kind, number


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return asyncio's own event loop, exact to the microsecond where there is epoll."""
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()

    class MicrosecondSelector(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0:
                select.select((self.fileno(),), (), (), timeout)
                timeout = 0
            return super().select(timeout)

    return asyncio.SelectorEventLoop(MicrosecondSelector())


async def pace(
    due: Iterator[Due], start_s: float, hand_out: Callable[[Due], None], stop: asyncio.Event
) -> Latency:
    """Hand out work at its due time until the schedule ends or `stop` is set; return the pacer's delays."""
    loop = asyncio.get_running_loop()
    own_delay, behind = Latency(), 0
    for one in due:
        due_s = start_s + one[0]
        while (wait_s := due_s - loop.time()) > 0 and not stop.is_set():
            behind = 0
            await asyncio.sleep(wait_s)
        if stop.is_set():
            break
        behind += 1
        if behind > _BEHIND_IN_A_ROW:
            behind = 0
            await asyncio.sleep(0)
        own_delay.record(loop.time() - due_s)
        hand_out(one)
    return own_delay
