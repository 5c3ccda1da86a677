"""All parts together: a fleet with workers before a cluster, clients, faults; one seed is one run, to the byte."""

import asyncio
import os
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random

import pytest

from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.server import Brokers
from tests.simulator.clients.batches import State
from tests.simulator.clients.java import JavaProducer
from tests.simulator.clients.settings import Settings
from tests.simulator.gateway import PORT, SimulatedGateway, configured
from tests.simulator.machine import Machine
from tests.simulator.topics import ModelTopics

ROOT = Path(__file__).parents[3]
BATCHES = 12


def storm(seed: int, workers: int, gateways: int = 2) -> str:
    """Run producers through a fleet of which everything fails now and then; return what happened, as a hash."""
    random = Random(f"{seed}/storm")
    with Machine(seed) as machine:
        loop = machine.loop
        loop.network.trace = []
        topics = ModelTopics(loop)

        async def main() -> None:
            cluster = ModelCluster(3, {"model": 4})
            brokers = Brokers(cluster)
            nodes = [cluster.address(node, "PLAINTEXT") for node in (1, 2, 3)]
            for node, (host, _) in enumerate(nodes, 1):
                await loop.process(host).spawn(brokers.listen(node))
            fleet = [
                SimulatedGateway(
                    machine,
                    configured(
                        f"gw{n}",
                        *(f"{host}:{port}" for host, port in nodes),
                        workers=workers,
                        events={"enabled": True, "partitions": 2},
                        state_dir=str(machine.directory / f"state{n}"),
                    ),
                    topics.own_client,
                )
                for n in range(gateways)
            ]
            for gateway in fleet:
                await gateway.start()
            working = [loop.create_task(produce(machine, n, gateways)) for n in range(3)]
            for _ in range(12):
                await asyncio.sleep(random.uniform(0.0, 1.0))
                await fault(random.choice(fleet))
            loop.network.heal()
            topics.heal()
            await asyncio.gather(*working)
            for gateway in fleet:
                await gateway.drain()

        async def fault(gateway: SimulatedGateway) -> None:
            kind = random.randrange(5)
            if kind == 0:
                for link in loop.network.links()[::3]:
                    link.cut()
            elif kind == 1:
                number = random.randrange(len(gateway.children))
                gateway.kill(number)
                if len(gateway.children) == 1:
                    await gateway.start()
            elif kind == 2:
                loop.network.partition(gateway.children[-1].name, "broker-1")
            elif kind == 3:
                topics.cut(gateway.host)
            else:
                loop.network.heal()
                topics.heal()

        loop.run(main())
        seen = repr((loop.network.trace, machine.lines, topics.values("__pidgate_events")))
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
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
