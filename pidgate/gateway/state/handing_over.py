"""Hand-over of the ids that passed before the state was restored, in small callbacks beside the traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pidgate.quota.producer_ids import ProducerIdQuota

PORTION: Final = 200
"""Ids per callback: about 2 ms."""


async def hand_over(quota: ProducerIdQuota, now_ms: Callable[[], int]) -> None:
    """Hand over the noted ids, except for one portion at most. The caller hands that over when it ends restoring.

    A turn hands over twice as many ids as arrived in the turn before. Otherwise a flood of new ids would prolong the
    restoring, in which nothing is refused, for as long as the flood lasts. Each portion is a callback of its own, so
    that other callbacks run in between.
    """
    loop = asyncio.get_running_loop()
    noted = quota.noted
    came = 0
    while (left := noted.left) > PORTION:
        portions = 1 + 2 * came // PORTION
        for _ in range(portions):
            loop.call_soon(quota.hand_over, now_ms(), PORTION)
        await asyncio.sleep(0)  # behind the portions
        came = noted.left - max(0, left - portions * PORTION)
