"""Handing over of what passed before the state was restored, beside the traffic, however much goes on coming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pidgate.quota.interim import InterimState, Successor

PORTION: Final = 200
"""Ids of one callback: some 2 ms."""


async def hand_over(interim: InterimState, successor: Successor, now_ms: Callable[[], int]) -> None:
    """Hand over what was noted, but for a portion at most: for whoever takes over, in the same turn of the event loop.

    A turn hands over twice as much as came in the one before: a flood of new ids would otherwise keep the interim
    state, which refuses nothing, for as long as it lasts. In callbacks of a portion each, so that others have theirs
    in between.
    """
    loop = asyncio.get_running_loop()
    came = 0
    while (left := interim.left) > PORTION:
        portions = 1 + 2 * came // PORTION
        for _ in range(portions):
            loop.call_soon(interim.hand_over, successor, now_ms(), PORTION)
        await asyncio.sleep(0)  # behind the portions
        came = interim.left - max(0, left - portions * PORTION)
