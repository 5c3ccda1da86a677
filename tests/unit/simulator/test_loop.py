"""The simulated loop and network behave as asyncio's on sockets, and one seed is one run."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.simulator.link import Link, Weather
from tests.simulator.loop import BEGAN_S, SimulatedLoop, SimulationFailed
from tests.simulator.network import SimulatedServer
from tests.simulator.transport import End
from tests.support.hash_seeds import printed_by_each


class World:
    """A server and a client process; the server echoes, unless a test serves otherwise."""

    def __init__(self, seed: int = 1, weather: Weather | None = None) -> None:
        self.loop = SimulatedLoop(seed)
        self.network = self.loop.network
        self.network.trace = []
        if weather is not None:
            self.network.weather = weather
        self.server = self.loop.process("server")
        self.client = self.loop.process("client", ip="10.0.0.7")
        self.peers: list[Any] = []
        self.streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def serve(self, handler: Callable[..., Any] | None = None) -> asyncio.AbstractServer:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.peers.append(writer.get_extra_info("peername"))
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()

        async def begin() -> asyncio.AbstractServer:
            return await asyncio.start_server(handler or echo, "server", 9092)

        return await self.server.spawn(begin())

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.streams.append(await self.client.spawn(asyncio.open_connection("server", 9092)))
        return self.streams[-1]

    @property
    def link(self) -> Link:
        return self.network.links("client", "server")[-1]


class Recorder(asyncio.Protocol):
    """What a transport's protocol is called with."""

    def __init__(self, keeps_open: bool = False) -> None:
        self.calls: list[object] = []
        self.keeps_open = keeps_open
        self.transport: End

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, End)
        self.transport = transport
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.calls.append(data)

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self.keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append(("lost", type(exc).__name__ if exc else None))

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    @property
    def data(self) -> bytes:
        return b"".join(call for call in self.calls if isinstance(call, bytes))


async def pair(world: World, there: Any = None, here: Any = None) -> tuple[Any, Any]:
    """Connect two protocols; return (client's, server's)."""
    there, here = there or Recorder(), here or Recorder()
    loop = world.loop
    await world.server.spawn(loop.create_server(lambda: there, "server", 9092))
    await world.client.spawn(loop.create_connection(lambda: here, "server", 9092))
    await asyncio.sleep(1)
    return here, there


def echoed(seed: int, weather: Weather | None = None) -> World:
    """Echo between asyncio's streams; return the world after its end."""
    world = World(seed, weather)

    async def main() -> None:
        await world.serve()
        for text in (b"x" * 10, b"y" * 300_000):
            reader, writer = await world.connect()
            writer.write(text)
            writer.write_eof()
            assert await reader.read() == text
            writer.close()
            await writer.wait_closed()

    world.loop.run(main())
    return world


def test_one_seed_is_one_run_and_another_seed_another() -> None:
    assert echoed(5).network.trace == echoed(5).network.trace
    assert echoed(5).network.trace != echoed(6).network.trace


def test_one_seed_is_one_run_whatever_hashes_are() -> None:
    code = (
        "import zlib; from tests.unit.simulator.test_loop import echoed;"
        "print(zlib.crc32(repr(echoed(5).network.trace).encode()))"
    )
    assert len(printed_by_each(code)) == 1


def test_writes_arrive_in_order_however_they_are_cut() -> None:
    world = World(3, Weather(recut=0.9, capacity_bytes=1_000))

    async def main() -> None:
        here, there = await pair(world)
        sent = [bytes([number]) * (number * 37) for number in range(1, 60)]
        for part in sent:
            world.client.call(here.transport.write, part)
        await asyncio.sleep(5)
        assert there.data == b"".join(sent)
        assert len(there.calls) > 60

    world.loop.run(main())


def test_time_jumps_and_call_soon_keeps_its_order() -> None:
    loop = SimulatedLoop(1)
    seen: list[object] = []

    async def main() -> None:
        for number in range(3):
            loop.call_soon(seen.append, number)
        loop.call_later(0, seen.append, "timer")
        loop.call_later(0.5, seen.append, "cancelled").cancel()
        async with asyncio.timeout(7_200):
            await asyncio.sleep(3_600)

    loop.run(main())
    assert seen == [0, 1, 2, "timer"]
    assert loop.time() == BEGAN_S + 3_600


def test_a_cut_resets_both_ends_and_what_was_under_way_may_arrive() -> None:
    arrived = set()
    for seed in range(20):
        world = World(seed)

        async def main(world: World = world) -> bytes:
            here, there = await pair(world)
            for part in (b"a", b"b", b"c"):
                world.client.call(here.transport.write, part)
            world.link.cut()
            await asyncio.sleep(1)
            assert here.calls[-1] == there.calls[-1] == ("lost", "ConnectionResetError")
            return bytes(there.data)

        arrived.add(world.loop.run(main()))
    assert arrived == {b"", b"a", b"ab", b"abc"}


def test_a_killed_process_runs_nothing_any_more_and_its_peers_see_its_end() -> None:
    world = World()
    ran: list[str] = []

    async def forever() -> None:
        try:
            while True:
                ran.append("tick")
                await asyncio.sleep(0.1)
        finally:
            ran.append("finally")

    async def main() -> None:
        here, _ = await pair(world)
        task = world.server.spawn(forever())
        await asyncio.sleep(1)
        world.loop.kill(world.server)
        before = len(ran)
        await asyncio.sleep(10)
        assert len(ran) == before
        assert not task.done()
        assert here.calls == ["made", "eof", ("lost", None)]
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        world.server = world.loop.process("server")
        await world.serve()
        await world.connect()
        assert "finally" not in ran

    world.loop.run(main())


def test_a_frozen_process_catches_up_while_its_kernel_accepts() -> None:
    world = World()

    async def main() -> None:
        await world.serve()
        world.server.freeze()
        assert world.server.is_frozen
        reader, writer = await world.connect()
        writer.write(b"hello")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await reader.read(5)
        world.loop.thaw(world.server)
        assert await reader.read(5) == b"hello"

    world.loop.run(main())


def test_a_partition_holds_everything_until_it_heals() -> None:
    world = World()

    async def main() -> None:
        await world.serve()
        reader, writer = await world.connect()
        world.network.partition("client", "server")
        writer.write(b"hello")
        connecting = world.client.spawn(world.connect())
        await asyncio.sleep(60)
        assert not connecting.done()
        world.network.heal()
        assert await reader.read(5) == b"hello"
        await connecting

    world.loop.run(main())


def test_connections_are_refused_and_names_are_not_found() -> None:
    world = World()

    async def main() -> None:
        await world.serve()
        world.network.refuse(("server", 9092))
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        world.network.refuse(("server", 9092), False)
        world.network.unknown("server")
        with pytest.raises(OSError, match="not known"):
            await world.connect()
        world.network.unknown("server", False)
        await world.connect()

    world.loop.run(main())


def test_one_port_of_several_processes_is_dealt_out_by_the_seed() -> None:
    loop = SimulatedLoop(4)
    taken: list[str] = []

    async def serve(name: str) -> SimulatedServer:
        bound = loop.network.bind("0.0.0.0", 9092, True)
        assert bound.getsockname() == ("gateway", 9092)
        return await loop.create_server(lambda: taken.append(name) or Recorder(), sock=bound)  # type: ignore[func-returns-value]

    async def main() -> None:
        workers = [loop.process(f"worker-{number}", host="gateway") for number in (1, 2)]
        for worker in workers:
            await worker.spawn(serve(worker.name))
        client = loop.process("client")
        for _ in range(20):
            await client.spawn(loop.create_connection(Recorder, "gateway", 9092))
        await asyncio.sleep(1)
        assert 4 < taken.count("worker-1") < 16
        loop.kill(workers[0])
        taken.clear()
        for _ in range(5):
            await client.spawn(loop.create_connection(Recorder, "gateway", 9092))
        await asyncio.sleep(1)
        assert taken == ["worker-2"] * 5
        with pytest.raises(OSError, match="in use"):
            client.call(
                lambda: loop.process("thief", host="gateway").call(loop.network.bind, "", 9092, False)
            )

    loop.run(main())


def test_threads_work_in_order_and_a_dead_process_has_none() -> None:
    loop = SimulatedLoop(1)
    process = loop.process("one")
    done: list[object] = []

    async def work() -> None:
        with ThreadPoolExecutor(1) as pool:
            first = loop.run_in_executor(pool, done.append, 1)
            second = loop.run_in_executor(pool, done.append, 2)
            await asyncio.gather(second, first)
        assert await asyncio.to_thread(len, done) == 2
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        loop.disk_slowness = 1_000.0
        await asyncio.to_thread(done.append, "never")

    async def main() -> None:
        process.spawn(work())
        await asyncio.sleep(0.05)
        loop.kill(process)
        await asyncio.sleep(60)
        assert done == [1, 2]

    loop.run(main())


def test_each_process_has_a_wall_clock() -> None:
    loop = SimulatedLoop(1)

    async def main() -> None:
        early, late = loop.process("early"), loop.process("late")
        late.wall_offset_ms = 3_000
        assert late.call(loop.wall_ns) - early.call(loop.wall_ns) == 3_000_000_000

    loop.run(main())


def test_what_nobody_takes_fails_the_run() -> None:
    world = World()

    class Broken(Recorder):
        def data_received(self, data: bytes) -> None:
            raise LookupError("broken protocol")

    async def main() -> None:
        here, _ = await pair(world, there=Broken())
        world.client.call(here.transport.write, b"x")
        await asyncio.sleep(1)

    with pytest.raises(SimulationFailed, match="broken protocol"):
        world.loop.run(main())


def test_a_task_whose_failure_nobody_looks_at_fails_the_run() -> None:
    loop = SimulatedLoop(1)
    process = loop.process("one")

    async def fails() -> None:
        raise LookupError("a broken task")

    async def main() -> None:
        dead = loop.process("dead")
        kept = [dead.spawn(fails())]
        await asyncio.sleep(1)
        loop.kill(dead)  # what it did not look at, nobody ever will
        loop.check()
        kept.append(process.spawn(fails()))
        await asyncio.sleep(1)

    with pytest.raises(SimulationFailed, match="a broken task"):
        loop.run(main())


def test_a_run_without_end_fails() -> None:
    async def waits_for_nothing() -> None:
        await asyncio.get_running_loop().create_future()

    async def sleeps() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    async def circles() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    for work, words in (
        (waits_for_nothing, "nothing can happen"),
        (sleeps, "not at its end"),
        (circles, "circle"),
    ):
        with pytest.raises(SimulationFailed, match=words):
            SimulatedLoop(1).run(work(), most_s=100)
