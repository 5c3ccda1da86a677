"""An event loop that wakes up on time, and the pacer that hands out what is due.

epoll takes its time-out in milliseconds, and so do asyncio's and uvloop's timers: at 2,000 requests a second each one
would be sent half a millisecond late, more than a gateway adds. select takes microseconds, and can wait for an epoll.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable, Iterator

from pidgate.load.schedule import Due
from pidgate.load.tally import Latency

_BEHIND_IN_A_ROW = 20
"""So many batches are handed out without a pause when the pacer is behind; answers must be read, too."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return asyncio's own loop; to the microsecond where there is epoll."""
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
    schedule: Iterator[Due], start_s: float, hand_out: Callable[[Due], None], stop: asyncio.Event
) -> Latency:
    """Hand out everything at its time until the schedule ends or `stop` is set; return its own delays."""
    loop = asyncio.get_running_loop()
    own_delay, behind = Latency(), 0
    for due in schedule:
        due_s = start_s + due[0]
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
        hand_out(due)
    return own_delay
