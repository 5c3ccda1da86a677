"""Every family through a real gateway that refuses its new producer id at first: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

from tests.simulator.brokers.batches import values
from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.server import Brokers
from tests.simulator.clients.hostile import Hostile
from tests.simulator.clients.producer import ModelProducer
from tests.simulator.clients.rogue import Rogue
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.traits import Traits
from tests.simulator.gateway import PORT, SimulatedGateway, configured
from tests.simulator.machine import Machine
from tests.unit.simulator.clients.test_every_family import families

PARTITIONS = 4
QUOTAS = {
    "mode": "enforce",
    "default": {"producer_ids_rate": 12},
    "producer_ids": {"window": "1m", "remember": "1h"},
}
"""One new id in 5 s, once the first are used up."""


class Scene:
    """A gateway before two brokers, and what a test makes of it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.cluster = ModelCluster(2, {"model": PARTITIONS})

    async def open(self) -> None:
        """Start all."""
        loop, brokers = self.machine.loop, Brokers(self.cluster)
        nodes = [self.cluster.address(node) for node in self.cluster.nodes.ids]
        for node, (host, _) in enumerate(nodes, 1):
            await loop.process(host).spawn(brokers.listen(node))
        servers = [f"{host}:{port}" for host, port in nodes]
        self.gateway = SimulatedGateway(self.machine, configured("gateway", *servers, quotas=QUOTAS))
        await self.gateway.start()

    def make(self, kind: Any, name: str, **options: Any) -> Any:
        """A client, a rogue or a hostile one, in a process of its own."""
        process = self.machine.loop.process(name)
        settings = Settings((("gateway", PORT),))
        random = Random(f"{self.machine.seed}/{name}")
        return process.call(lambda: kind(name, settings, random, **options))

    def log(self, name: str, partition: int) -> list[bytes]:
        """Values of that producer's batches."""
        found = [values(entry.raw)[0] or b"" for entry in self.cluster.partition("model", partition).log]
        return [value for value in found if value.startswith(name.encode() + b"|")]


async def burn(scene: Scene, count: int) -> None:
    """Use up the quota of the user that all share."""
    rogue = scene.make(Rogue, "rogue")
    await scene.machine.loop.processes["rogue"].spawn(rogue.id_per_batch(count, patience_s=2.0))


async def work(scene: Scene, client: Any, batches: int) -> None:
    """Send to all partitions, and wait for the end of it."""
    process = scene.machine.loop.processes[client.name]
    await process.spawn(client.start())
    for number in range(batches):
        process.call(client.send, number % PARTITIONS, 1 + number % 2)
        if number % 8 == 7:
            await asyncio.sleep(0.3)
    await process.spawn(client.flush())


@families
def test_a_producer_that_is_refused_at_first_loses_nothing(traits: Traits) -> None:
    with Machine(3) as machine:
        scene = Scene(machine)

        async def main() -> Any:
            await scene.open()
            await burn(scene, 40)
            client = scene.make(partial(ModelProducer, traits), "good")
            await asyncio.gather(
                work(scene, client, 32),
                *(work(scene, scene.make(partial(ModelProducer, traits), f"other-{n}"), 4) for n in range(2)),
            )
            await scene.gateway.drain()
            return client

        client = machine.loop.run(main())
    assert not client.told.failed
    assert len(client.told.acknowledged) == 32
    assert any(batch.attempts for batch in client.told.acknowledged), "it was never refused"
    for partition in range(PARTITIONS):
        told = [batch.value for batch in client.told.acknowledged if batch.partition == partition]
        assert scene.log("good", partition) == told


@families
def test_the_hostile_client_harms_nobody(traits: Traits) -> None:
    with Machine(4) as machine:
        scene = Scene(machine)

        async def main() -> Any:
            await scene.open()
            client, hostile = (
                scene.make(partial(ModelProducer, traits), "good"),
                scene.make(Hostile, "hostile"),
            )
            await asyncio.gather(
                work(scene, client, 24), machine.loop.processes["hostile"].spawn(hostile.run(40))
            )
            await scene.gateway.drain()
            return client

        client = machine.loop.run(main())
    assert not client.told.failed
    assert len(client.told.acknowledged) == 24
