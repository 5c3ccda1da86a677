"""The two clocks: the event loop's monotonic clock for decisions, the wall clock for times that outlive the
process.

No other module of the gateway reads the machine's clocks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_ROUNDING_MS: Final = 0.001


def monotonic_ms(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """Return the event loop's clock in ms: one reading per turn of the loop, good enough for quotas.

    Rounded up a little, so that a timer set for a millisecond finds it reached. In floats 1024.003 s times
    1000 is slightly less than 1024003, and code that sets the timer again would loop until the clock
    advances.
    """
    time_s = loop.time
    return lambda: int(time_s() * 1000 + _ROUNDING_MS)


async def next_tick(every_s: float = 1.0) -> None:
    """Sleep until the event loop's clock is at a whole multiple of `every_s`.

    All that is done once a second is done in one wake-up: an idle process costs what it wakes.
    """
    await asyncio.sleep(until_tick_s(asyncio.get_running_loop().time(), every_s))


def until_tick_s(now_s: float, every_s: float = 1.0) -> float:
    """Return the time left; a hundredth of `every_s` at least, since a timer may fire a little early."""
    left_s = every_s - now_s % every_s
    return left_s if left_s > every_s / 100 else left_s + every_s


def monotonic_s() -> float:
    """Return the monotonic clock in seconds, read now: the event loop's is cached during a callback."""
    return time.monotonic()


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
