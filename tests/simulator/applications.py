"""Applications: what uses the model producers, as the steps of a schedule say."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulator.clients.batches import Batch
from tests.simulator.clients.producer import ModelProducer
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.traits import FAMILIES, UNUSUAL

if TYPE_CHECKING:
    from tests.simulator.schedule import ClientSetup
    from tests.simulator.world import World

PATIENCE_S: Final = 1_000.0
"""Delivery time-out of a client that is patient: longer than any wait that has a bound."""
BETWEEN_TRIES_S: Final = 1.0
"""From a transaction that failed to the next one."""
PADDING_BYTES: Final = 400
"""Of a record that is large: most requests are cut in it, where they are cut."""

MUCH_PADDING_BYTES: Final = 6_000
"""Of one for which memory has to be granted, once a part of it has come."""

Parts = tuple[tuple[int, int], ...]
"""Partition and number of batches."""


def _padding_bytes(world: World) -> int:
    if world.setup.buffered_total_bytes is not None:
        return MUCH_PADDING_BYTES
    return PADDING_BYTES if world.setup.passes_on else 0


class Application:
    """One process with one producer; a transactional one works off its transactions in order."""

    def __init__(self, world: World, setup: ClientSetup) -> None:
        self.world = world
        self.setup = setup
        self.name = setup.name
        self.process = world.loop.process(setup.name, ip=world.next_ip())
        self.is_gone = False
        """Crashed or closed: it is given nothing more to do."""
        self.sent: list[Batch] = []
        self._todo: list[tuple[Parts, bool]] = []
        self._has_todo = asyncio.Event()
        self.is_busy = False
        self.client: ModelProducer = self.process.call(self._make)

    def _make(self) -> ModelProducer:
        world, setup = self.world, self.setup
        traits = (FAMILIES | UNUSUAL)[setup.family]
        times = replace(traits.times, delivery_s=setup.hurry_s or PATIENCE_S, max_block_s=PATIENCE_S)
        settings = Settings(
            bootstrap=world.bootstrap(setup.gateway),
            topic=world.topic,
            login=world.login(setup.user),
            transactional_id=f"{setup.name}.tx" if setup.is_transactional else None,
            times=times,
            padding_bytes=_padding_bytes(world),
        )
        random = Random(f"{world.schedule.seed}/{setup.name}")
        made = ModelProducer(traits, setup.name, settings, random, world.trace)
        made.told.heard = world.acknowledged
        return made

    def start(self) -> None:
        """Begin."""
        self.process.spawn(self._work() if self.setup.is_transactional else self._start())

    async def _start(self) -> None:
        await self.client.start()

    def send(self, partition: int, count: int) -> None:
        """Send so many batches, one after another."""
        if self.is_gone or self.setup.is_transactional:
            return
        for _ in range(count):
            self.sent.append(self.client.send(partition, 1 + len(self.sent) % 3))

    def transact(self, parts: Parts, *, commits: bool) -> None:
        """Have one more transaction done, after those there are."""
        if not self.is_gone and self.setup.is_transactional:
            self._todo.append((parts, commits))
            self._has_todo.set()

    @property
    def is_idle(self) -> bool:
        """Whether it knows the end of all that it has begun."""
        if self.is_gone or self.client.told.fatal or self.client.is_stuck:
            return True
        return not self.client.open and not self._todo and not self.is_busy

    @property
    def backlog(self) -> int:
        """Transactions that have not begun."""
        return len(self._todo)

    @property
    def is_cut_off(self) -> bool:
        """Whether it may have left a transaction open."""
        return self.is_gone or bool(self.client.told.fatal)

    def crash(self) -> None:
        """Kill -9."""
        if not self.is_gone:
            self.is_gone = True
            self.process.call(self.client.crash)
            self.world.loop.kill(self.process)

    def close(self) -> None:
        """End it politely, in its own time."""
        if not self.is_gone:
            self.is_gone = True
            self.process.spawn(self.client.close(PATIENCE_S))

    # ---- transactions ----------------------------------------------------------------------------------

    async def _work(self) -> None:
        client = self.client
        self.is_busy = True
        while why := await client.start():
            if client.told.fatal:
                return
            self.world.note(f"{self.name} cannot start: {why}")
            await asyncio.sleep(BETWEEN_TRIES_S)
        while not client.told.fatal and not self.is_gone:
            if not self._todo:
                self.is_busy = False
                self._has_todo.clear()
                await self._has_todo.wait()
                self.is_busy = True
            await self._transact(client, *self._todo.pop(0))

    async def _transact(self, client: ModelProducer, parts: Parts, commits: bool) -> None:
        if why := await client.begin():
            self.world.note(f"{self.name} cannot begin: {why}")
            return
        for partition, count in parts:
            for _ in range(count):
                self.sent.append(client.send(partition, 1 + len(self.sent) % 3))
        why = await (client.commit() if commits else client.abort())
        while why and not client.told.fatal:
            self.world.note(f"{self.name} could not {'commit' if commits else 'abort'}: {why}")
            commits = False
            why = await client.abort()
            if why:
                await asyncio.sleep(BETWEEN_TRIES_S)
