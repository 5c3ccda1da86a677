"""The two clocks: the event loop's monotonic one decides; the wall's is for what outlives the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def monotonic_ms(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """The event loop's clock: one reading per turn of the loop, good enough for quotas."""
    time_s = loop.time
    return lambda: int(time_s() * 1000)


def wall_ms() -> int:
    """Since 1970."""
    return time.time_ns() // 1_000_000
