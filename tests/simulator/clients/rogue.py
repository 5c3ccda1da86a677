"""Producers that burn ids: a crash loop, and one that takes a new producer for each batch. Real clients otherwise."""

from __future__ import annotations

import asyncio
from random import Random

from tests.simulator.clients.batches import Batch, ModelViolation, Told
from tests.simulator.clients.producer import ModelProducer
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.traits import LIBRDKAFKA, Traits
from tests.simulator.clients.turns import Trace


class Rogue:
    """One application that makes producer after producer; `lives` counts them, `told` has what all were told."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        random: Random,
        trace: Trace | None = None,
        *,
        traits: Traits = LIBRDKAFKA,
        partitions: int = 1,
    ) -> None:
        self.name = name
        self.lives = 0
        self.told: list[Told] = []
        self.sent: list[Batch] = []
        self._settings = settings
        self._random = random
        self._trace = trace
        self._traits = traits
        self._partitions = partitions

    async def crash_loop(self, lives: int, *, life_s: float = 1.0, pause_s: float = 0.1) -> None:
        """Begin, send a few batches, crash after some time; again and again."""
        for _ in range(lives):
            client = self._next()
            await self._start(client)
            for _ in range(self._random.randint(1, 3)):
                self._send(client)
            await asyncio.sleep(self._random.uniform(0.0, 2 * life_s))
            client.crash()
            await asyncio.sleep(self._random.uniform(0.0, 2 * pause_s))

    async def id_per_batch(self, batches: int, *, patience_s: float = 10.0) -> None:
        """A producer for each batch, closed when the batch is done, or nobody wants to wait any longer."""
        for _ in range(batches):
            client = self._next()
            await self._start(client)
            self._send(client)
            await client.close(patience_s)

    def _next(self) -> ModelProducer:
        self.lives += 1
        client = ModelProducer(
            self._traits, f"{self.name}.{self.lives}", self._settings, self._random, self._trace
        )
        self.told.append(client.told)
        return client

    async def _start(self, client: ModelProducer) -> None:
        if self._settings.transactional_id is not None:
            raise ModelViolation("a rogue has no transactions")
        await client.start()

    def _send(self, client: ModelProducer) -> None:
        self.sent.append(client.send(self._random.randrange(self._partitions), self._random.randint(1, 5)))
