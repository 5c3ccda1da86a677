"""Wakes the connections that wait for a byte account: one each time its debt is paid, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from pidgate.quota.byte_quota import ByteBucket

WOKEN_PER_TURN: Final = 100
"""Connections: each may judge requests for 10 ms at most, most of them for some 50 us."""


class ByteWaits:
    """One timer for each account with connections that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._timers: dict[ByteBucket, asyncio.TimerHandle] = {}

    def add(self, account: ByteBucket, connection_id: int, wake: Callable[[], None]) -> None:
        """Call `wake` in its turn. A connection that waits already keeps its place."""
        account.waiting.setdefault(connection_id, wake)
        if account not in self._timers:
            self._set_timer(account, account.wait_ms(self._now_ms()))

    def follow_quotas(self) -> None:
        """Set all timers again: rates have changed."""
        for account, timer in list(self._timers.items()):
            timer.cancel()
            self._set_timer(account, account.wait_ms(self._now_ms()))

    def _set_timer(self, account: ByteBucket, wait_ms: int) -> None:
        self._timers[account] = self._loop.call_later(wait_ms / 1000, partial(self._wake_next, account))

    def _wake_next(self, account: ByteBucket) -> None:
        wait_ms = 0
        for _ in range(WOKEN_PER_TURN):
            wait_ms = account.wait_ms(self._now_ms())
            if wait_ms or not account.waiting:
                break
            connection_id = next(iter(account.waiting))
            wake = account.waiting.pop(connection_id)
            account.turn = connection_id
            wake()
            account.turn = None
        if account.waiting:
            self._set_timer(account, wait_ms)
        else:
            del self._timers[account]
