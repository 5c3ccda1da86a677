"""The two clocks: the event loop's, monotonic, for decisions; the wall's for what outlives the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def monotonic_ms(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """Return the event loop's clock in ms: one reading per turn of the loop, good enough for quotas."""
    time_s = loop.time
    return lambda: int(time_s() * 1000)


def wall_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000
