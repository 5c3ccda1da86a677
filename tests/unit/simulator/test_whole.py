"""All parts together: a fleet with workers before a cluster, clients, faults; one seed is one run, to the byte."""

import asyncio
import os
import zlib
from dataclasses import replace
from random import Random

import pytest

from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.server import Brokers
from tests.simulator.clients.batches import State
from tests.simulator.clients.java import JavaProducer
from tests.simulator.clients.settings import Settings
from tests.simulator.gateway import PORT, Child, SimulatedGateway, configured
from tests.simulator.link import Weather
from tests.simulator.machine import Machine
from tests.simulator.topics import ModelTopics
from tests.support.hash_seeds import printed_by_each

BATCHES = 12


class Storm:
    """A fleet of which everything fails now and then."""

    def __init__(self, machine: Machine, workers: int, gateways: int) -> None:
        self.machine, self.loop = machine, machine.loop
        self.loop.network.trace = []
        self.random = Random(f"{machine.seed}/storm")
        self.topics = ModelTopics(self.loop)
        cluster = ModelCluster(3, {"model": 4})
        self.nodes = [cluster.address(node, "PLAINTEXT") for node in (1, 2, 3)]
        self._cluster = cluster
        self.fleet = [self._gateway(n, workers) for n in range(gateways)]
        self.faults = (self.cut, self.kill, self.part, self.cut_topic, self.freeze, self.set_clock, self.slow)

    def _gateway(self, number: int, workers: int) -> SimulatedGateway:
        settings = configured(
            f"gw{number}",
            *(f"{host}:{port}" for host, port in self.nodes),
            workers=workers,
            events={"enabled": True, "partitions": 2},
            state_dir=str(self.machine.directory / f"state{number}"),
        )
        return SimulatedGateway(self.machine, settings, self.topics.own_client)

    async def start(self) -> None:
        brokers = Brokers(self._cluster)
        for node, (host, _) in enumerate(self.nodes, 1):
            await self.loop.process(host).spawn(brokers.listen(node))
        for gateway in self.fleet:
            await gateway.start()

    async def run(self) -> None:
        await self.start()
        working = [self.loop.create_task(produce(self.machine, n, len(self.fleet))) for n in range(3)]
        for _ in range(12):
            await asyncio.sleep(self.random.uniform(0.0, 1.0))
            gateway = self.random.choice(self.fleet)
            await self.random.choice(self.faults)(gateway, self.random.choice(gateway.children))
            if self.random.random() < 0.2:
                self.heal()
        await asyncio.sleep(8)  # until the last frozen one has thawed
        self.heal()
        await asyncio.gather(*working)
        for gateway in self.fleet:
            await gateway.drain()

    def heal(self) -> None:
        self.loop.network.heal()
        self.topics.heal()
        self.loop.disk_slowness = self.topics.slowness = 1.0

    # ---- faults ------------------------------------------------------------------------------------------

    async def cut(self, _gateway: SimulatedGateway, _child: Child) -> None:
        for link in self.loop.network.links()[::3]:
            link.cut()

    async def kill(self, gateway: SimulatedGateway, child: Child) -> None:
        gateway.kill(child.number)
        if len(gateway.children) == 1:
            await gateway.start()

    async def part(self, gateway: SimulatedGateway, _child: Child) -> None:
        self.loop.network.partition(gateway.children[-1].name, "broker-1")

    async def cut_topic(self, gateway: SimulatedGateway, _child: Child) -> None:
        self.topics.cut(gateway.host)

    async def freeze(self, _gateway: SimulatedGateway, child: Child) -> None:
        process = child.process
        if process is not None and process.is_running:
            process.freeze()
            self.loop.call_later(self.random.uniform(0.01, 7.0), self.loop.thaw, process)

    async def set_clock(self, _gateway: SimulatedGateway, child: Child) -> None:
        if child.process is not None:
            child.process.wall_offset_ms += self.random.randrange(-5_000, 5_000)

    async def slow(self, _gateway: SimulatedGateway, _child: Child) -> None:
        slow = Weather(0.0001, self.random.choice((0.002, 0.1, 0.5)), self.random.random(), 2_000)
        for link in self.loop.network.links()[::2]:
            link.weather = replace(slow)
        self.loop.disk_slowness, self.topics.slowness = 1_000.0, 30.0


def storm(seed: int, workers: int, gateways: int = 2) -> str:
    """Run producers through a fleet in a storm; return what happened, as a hash."""
    with Machine(seed) as machine:
        blowing = Storm(machine, workers, gateways)
        loop = machine.loop
        loop.run(blowing.run())
        seen = repr((loop.network.trace, machine.lines, blowing.topics.values("__pidgate_events")))
        return f"{zlib.crc32(seen.replace(str(machine.directory), '').encode()):08x} {loop.time():.6f}"


async def produce(machine: Machine, number: int, gateways: int) -> None:
    """Send BATCHES batches, one after the other; all of them get their end."""
    name = f"client-{number}"
    process = machine.loop.process(name)
    bootstrap = tuple((f"gw{(number + n) % gateways}", PORT) for n in range(gateways))
    client = process.call(JavaProducer, name, Settings(bootstrap), Random(f"{machine.seed}/{name}"))
    assert await process.spawn(client.start()) == ""
    for batch in range(BATCHES):
        process.call(client.send, batch % 4)
        await asyncio.sleep(0.7)
    await process.spawn(client.flush())
    await process.spawn(client.close(5.0))
    assert len(client.told.acknowledged) + len(client.told.failed) == BATCHES
    assert all(batch.state is State.ACKED for batch in client.told.acknowledged)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_storm_ends_and_everything_drains(seed: int, workers: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    storm(seed, workers)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_one_seed_is_one_run_whatever_hashes_are() -> None:
    code = "from tests.unit.simulator.test_whole import storm; print(storm(1, 2))"
    assert len(printed_by_each(code)) == 1
