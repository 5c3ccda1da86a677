"""Wakes the connections that wait for a byte account: one each time its debt is paid, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from pidgate.quota.byte_quota import ByteBucket, Waiter


class ByteWaits:
    """One timer for each account with connections that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._timers: dict[ByteBucket, asyncio.TimerHandle | None] = {}
        """None: the debt is paid, and the first connection waits for its turn of the event loop."""

    def add(self, account: ByteBucket, connection_id: int, connection: Waiter) -> None:
        """Wake the connection in its turn. One that waits already keeps its place."""
        account.waiting.setdefault(connection_id, connection)
        if account not in self._timers:
            self._set_timer(account, account.wait_ms(self._now_ms()))

    def follow_quotas(self) -> None:
        """Set all timers again: rates have changed."""
        for account, timer in list(self._timers.items()):
            if timer is not None:
                timer.cancel()
                self._set_timer(account, account.wait_ms(self._now_ms()))

    def _set_timer(self, account: ByteBucket, wait_ms: int) -> None:
        self._timers[account] = self._loop.call_later(wait_ms / 1000, partial(self._await_turn, account))

    def _await_turn(self, account: ByteBucket) -> None:
        """Wake the first connection in a turn of its user, once the debt is paid."""
        wait_ms = account.wait_ms(self._now_ms())
        if not account.waiting:
            del self._timers[account]
        elif wait_ms:
            self._set_timer(account, wait_ms)
        else:
            self._timers[account] = None
            connection = next(iter(account.waiting.values()))
            connection.await_turn(account, partial(self._wake_first, account))

    def _wake_first(self, account: ByteBucket) -> None:
        if account.waiting and not account.wait_ms(self._now_ms()):
            connection_id = next(iter(account.waiting))
            account.turn = connection_id
            account.waiting.pop(connection_id).wake()
            account.end_turn()
        self._await_turn(account)
