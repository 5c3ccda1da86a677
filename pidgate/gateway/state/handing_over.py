"""Handover of ids noted before the state was restored, alongside the traffic and under any load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pidgate.quota.interim import InterimState, Successor

PORTION: Final = 200
"""Ids per callback: about 2 ms."""


async def hand_over(interim: InterimState, successor: Successor, now_ms: Callable[[], int]) -> None:
    """Hand over all noted ids except for at most one portion.

    The caller hands over that rest in the same turn. A turn hands over twice as many ids as arrived in the
    turn before. Otherwise a flood of new ids would keep the interim state, which refuses nothing, in place
    for as long as it lasts. Each portion is a callback of its own, so that other callbacks run in between.
    """
    loop = asyncio.get_running_loop()
    came = 0
    while (left := interim.left) > PORTION:
        portions = 1 + 2 * came // PORTION
        for _ in range(portions):
            loop.call_soon(interim.hand_over, successor, now_ms(), PORTION)
        await asyncio.sleep(0)  # behind the portions
        came = interim.left - max(0, left - portions * PORTION)
