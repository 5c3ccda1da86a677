"""The fuse at work. Its changes go the way of every run-time change, so one decision holds for the whole fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pidgate.gateway.clock import next_tick
from pidgate.gateway.logs import begun_anew
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.quota.changes import Change
from pidgate.quota.entities import User
from pidgate.quota.fuse import Fuse, Look, enforcement
from pidgate.quota.producer_ids import ProducerIdQuota

USERS_PER_TURN: Final = 1_000
COUNTED_PER_TURN: Final = 20


class Fusing:
    """`start` and `stop` once. It looks once a second, and waits while a change is being kept."""

    def __init__(
        self,
        store: QuotaStore,
        state: ProducerIdQuota,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._fuse = Fuse(state)
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._background: asyncio.Task[None] | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._background = loop.create_task(begun_anew("fuse", self._run))

    async def stop(self) -> None:
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await next_tick()
            changes = await self._find_changes()
            if changes:
                await self._store.change(changes)

    async def _find_changes(self) -> list[Change]:
        look = self._fuse.look(self._store.in_force.changes, self._now_ms(), self._wall_ms())
        user = await self._largest_contributor(look) if look.note else None
        return (
            look.renewed if user is None else [*look.renewed, enforcement(user, look.note, self._wall_ms())]
        )

    async def _largest_contributor(self, look: Look) -> User | None:
        largest: tuple[int, User] | None = None
        turn = 0
        for found in self._fuse.contributions(self._now_ms(), file_wins=self._store.file_wins):
            turn += 1 if found is None else USERS_PER_TURN // COUNTED_PER_TURN
            if found is not None and found[0] not in look.taken:
                largest = max(largest or (-1, ""), (found[1], found[0]))
            if turn >= USERS_PER_TURN:
                turn = 0
                await asyncio.sleep(0)
        return None if largest is None else largest[1]
