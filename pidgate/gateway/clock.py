"""The two clocks: the event loop's, monotonic, for decisions; the wall's for what outlives the process.

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

    A timer set for a millisecond finds it reached: 1024.003 s times 1000 is a little less than 1024003 in floats, and
    whoever sets the timer again then runs in a circle until the clock goes on.
    """
    time_s = loop.time
    return lambda: int(time_s() * 1000 + _ROUNDING_MS)


def monotonic_s() -> float:
    """Return the monotonic clock in seconds, read now: the event loop's stands still within a callback."""
    return time.monotonic()


def wall_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000
