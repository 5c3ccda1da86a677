"""The model cluster behind connections: whole frames only, answers in order, and what real clients make of it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from pidgate.protocol.record_batch import record_batch
from tests.simulator.brokers.batches import values
from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.server import Brokers
from tests.simulator.brokers.timers import Delays
from tests.simulator.link import Weather
from tests.simulator.loop import SimulatedLoop
from tests.support import raw

PRODUCE, METADATA, INIT = 0, 3, 22
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def produce(n: int, *, acks: int = -1, sequence: int | None = None) -> bytes:
    records = record_batch([b"%d" % n], 7, 0, n if sequence is None else sequence, 0)
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]
    body = {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": data}
    return raw.request(PRODUCE, 9, body, correlation_id=n)


async def answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def is_over(reader: asyncio.StreamReader) -> bool:
    """Return whether nothing more comes; what was not read on the other side makes a reset of its end."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


class World:
    """Three nodes, and a client, on a simulated network that cuts writes as it likes."""

    def __init__(self, seed: int = 1, **delays: Callable[[], int]) -> None:
        self.loop = SimulatedLoop(seed)
        self.loop.network.weather = replace(Weather(), recut=0.9)
        self.cluster = ModelCluster(3, {"orders": 3}, delays=Delays(**delays))
        self.delay_s: Callable[[Any, bytes], float] | None = None
        self.client = self.loop.process("client")

    def run(self, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            self.brokers = Brokers(self.cluster, delay_s=self.delay_s)
            for node_id in (1, 2, 3):
                await self.loop.process(f"broker-{node_id}").spawn(self.brokers.listen(node_id))
            await self.client.spawn(scenario(self))

        self.loop.run(main(), most_s=100.0)

    async def connect(self, node_id: int = 1) -> Streams:
        return await asyncio.open_connection(*self.cluster.address(node_id))

    def log(self) -> list[bytes | None]:
        return [value for entry in self.cluster.partition("orders", 0).log for value in values(entry.raw)]


@pytest.mark.parametrize("seed", range(5))
def test_a_pipeline_is_answered_in_order_whatever_takes_long(seed: int) -> None:
    async def scenario(world: World) -> None:
        reader, writer = await world.connect()
        for n in range(20):
            writer.write(produce(n))
        writer.write(raw.request(METADATA, 1, {"topics": None}, correlation_id=20))
        for n in range(21):
            assert (await answer(reader))[:4] == n.to_bytes(4, "big")
        writer.close()

    delays = iter([3, 0, 20, 5] * 20)
    world = World(seed, replication_ms=lambda: next(delays))
    world.delay_s = lambda _, frame: frame[7] % 3 * 0.01
    world.run(scenario)
    assert world.log() == [b"%d" % n for n in range(20)]


def test_a_frame_that_is_not_whole_is_never_acted_on_and_one_before_the_end_is() -> None:
    async def scenario(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(produce(0) + produce(1) + produce(2)[:-1])
        writer.write_eof()
        assert [(await answer(reader))[3] for _ in range(2)] == [0, 1]
        assert await reader.read() == b""
        writer.close()

    world = World(replication_ms=lambda: 10)
    world.run(scenario)
    assert world.log() == [b"0", b"1"]


def test_a_node_that_stops_ends_its_connections_and_another_leads() -> None:
    async def scenario(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(produce(0))
        await answer(reader)
        world.brokers.stop(1)
        assert await is_over(reader)
        writer.close()
        other, writer = await world.connect(world.cluster.partition("orders", 0).leader or 0)
        writer.write(produce(1))
        await answer(other)
        writer.close()

    world = World()
    world.run(scenario)
    assert world.log() == [b"0", b"1"]


def test_who_waits_for_replication_is_told_that_the_leader_moved() -> None:
    async def scenario(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(produce(0))
        await asyncio.sleep(1)
        world.brokers.move_leader("orders", 0, 3)
        found = raw.decoded(PRODUCE, 9, await answer(reader))
        assert found["responses"][0]["partition_responses"][0]["error_code"] == 6
        writer.close()

    world = World(replication_ms=lambda: 5000)
    world.run(scenario)
    assert world.log() == []


def test_a_throttled_connection_is_muted_after_its_answer() -> None:
    async def scenario(world: World) -> None:
        reader, writer = await world.connect()
        began_s = world.loop.time()
        writer.write(produce(0) + produce(1))
        await answer(reader)
        assert world.loop.time() - began_s < 0.5
        await answer(reader)
        assert world.loop.time() - began_s >= 1
        writer.close()

    World(throttle_ms=lambda: 1000).run(scenario)
