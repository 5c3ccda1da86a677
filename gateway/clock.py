"""The two clocks: the event loop's, monotonic, for decisions; the wall's for what outlives the process.

No other module of the gateway reads the machine's clocks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def monotonic_ms(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """Return the event loop's clock in ms: one reading per turn of the loop, good enough for quotas."""
    time_s = loop.time
    return lambda: int(time_s() * 1000)


def monotonic_s() -> float:
    """Return the monotonic clock in seconds, read now: the event loop's stands still within a callback."""
    return time.monotonic()


def wall_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000
