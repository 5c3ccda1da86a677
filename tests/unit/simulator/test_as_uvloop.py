"""The simulated transports do what uvloop's do over loopback: each scenario runs on both, with the same calls."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from tests.simulator.link import Weather
from tests.simulator.loop import SimulatedLoop
from tests.simulator.process import Process

LARGE = b"l" * 8_000_000


class Seen(asyncio.Protocol):
    """What a protocol was called with, as words; bytes that come one after another are one."""

    def __init__(self, keeps_open: bool = False) -> None:
        self.calls: list[str] = []
        self.nbytes = 0
        self.keeps_open = keeps_open
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.nbytes += len(data)
        if self.calls[-1] != "data":
            self.calls.append("data")

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self.keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append(f"lost {type(exc).__name__ if exc else None}")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


class Broken(Seen):
    def data_received(self, data: bytes) -> None:
        raise LookupError("broken")


class Buffered(asyncio.BufferedProtocol):
    """Reads by tens, until it hands over to another protocol after so many reads."""

    def __init__(self, reads: int, then: Seen) -> None:
        self.buffer = bytearray(10)
        self.left = reads
        self.then = then
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = self.then.transport = transport
        self.then.calls.append("made")

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.then.calls.append(f"buffer {nbytes}")
        self.left -= 1
        if not self.left:
            self.transport.set_protocol(self.then)

    def eof_received(self) -> bool:
        return self.then.eof_received()


class World:
    """Two ends on one of the loops. `as_client`, `as_server`: call something as that end's process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.errors: list[str] = []
        self.ends: tuple[Any, ...] = ()
        self.client: Process | None = None
        self.server: Process | None = None
        if isinstance(loop, SimulatedLoop):
            loop.network.weather = Weather(recut=0)
            self.client, self.server = loop.process("client"), loop.process("server")

    async def pair(self, here: Any, there: Any) -> None:
        if isinstance(self.loop, SimulatedLoop):
            assert self.client is not None
            assert self.server is not None
            await self.server.spawn(self.loop.create_server(lambda: there, "server", 9092))
            await self.client.spawn(self.loop.create_connection(lambda: here, "server", 9092))
        else:
            self.loop.set_exception_handler(lambda _, context: self.errors.append(str(context["exception"])))
            server = await self.loop.create_server(lambda: there, "127.0.0.1", 0)
            await self.loop.create_connection(lambda: here, "127.0.0.1", server.sockets[0].getsockname()[1])
            server.close()
        self.ends = here, there
        await self.settle()

    async def settle(self) -> None:
        # Turns of the loop are what counts: loopback delivers within the call that sends.
        for _ in range(10):
            await asyncio.sleep(0.5 if isinstance(self.loop, SimulatedLoop) else 0.002)

    def as_client(self, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args) if self.client is None else self.client.call(call, *args)

    def as_server(self, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args) if self.server is None else self.server.call(call, *args)

    def end(self) -> None:
        if isinstance(self.loop, SimulatedLoop):
            self.errors = [line for line in self.loop.failures if "Traceback" not in line]
            self.loop.failures.clear()


Scenario = Callable[[World], Awaitable[object]]


async def close_behind_data(world: World) -> object:
    here, there = Seen(), Seen()
    await world.pair(here, there)
    world.as_client(here.transport.write, b"abc")
    world.as_client(here.transport.close)
    world.as_client(here.transport.close)
    await world.settle()
    return here.calls, there.calls, there.nbytes


async def half_close(world: World) -> object:
    here, there = Seen(), Seen(keeps_open=True)
    await world.pair(here, there)
    world.as_client(here.transport.write_eof)
    await world.settle()
    world.as_server(there.transport.write, b"more")
    await world.settle()
    world.as_server(there.transport.close)
    await world.settle()
    return here.calls, there.calls


async def end_of_stream_is_seen_again_by_whoever_reads_on(world: World) -> object:
    here, there = Seen(), Seen(keeps_open=True)
    await world.pair(here, there)
    world.as_client(here.transport.write_eof)
    await world.settle()
    world.as_server(there.transport.resume_reading)
    await world.settle()
    world.as_server(there.transport.pause_reading)
    world.as_server(there.transport.resume_reading)
    await world.settle()
    return here.calls, there.calls


async def abort_with_nothing_unread(world: World) -> object:
    here, there = Seen(), Seen()
    await world.pair(here, there)
    world.as_client(here.transport.abort)
    world.as_client(here.transport.abort)
    await world.settle()
    return here.calls, there.calls


async def close_with_bytes_unread(world: World) -> object:
    here, there = Seen(), Seen()
    await world.pair(here, there)
    world.as_client(here.transport.pause_reading)
    world.as_server(there.transport.write, b"unread")
    await world.settle()
    world.as_client(here.transport.close)
    await world.settle()
    return here.calls, there.calls


async def write_to_who_has_closed(world: World) -> object:
    here, there = Seen(), Seen(keeps_open=True)
    await world.pair(here, there)
    world.as_client(here.transport.close)
    await world.settle()
    world.as_server(there.transport.write, b"too late")
    await world.settle()
    first = list(there.calls)
    world.as_server(there.transport.write, b"too late")
    closing = there.transport.is_closing()
    await world.settle()
    return here.calls, first, closing, there.calls


async def close_while_the_peer_does_not_read(world: World) -> object:
    here, there = Seen(), Seen()
    await world.pair(here, there)
    world.as_server(there.transport.pause_reading)
    world.as_client(here.transport.write, b"abc")
    world.as_client(here.transport.close)
    await world.settle()
    before = list(there.calls)
    world.as_server(there.transport.resume_reading)
    await world.settle()
    return here.calls, before, there.calls


async def reset_behind_a_pause(world: World) -> tuple[Seen, Seen]:
    """Return the client, which has closed with bytes unread, and the server, which does not read meanwhile."""
    here, there = Seen(), Seen()
    await world.pair(here, there)
    world.as_client(here.transport.pause_reading)
    world.as_server(there.transport.write, b"unread")
    await world.settle()
    world.as_server(there.transport.pause_reading)
    world.as_client(here.transport.close)
    await world.settle()
    return here, there


async def reset_while_the_peer_does_not_read(world: World) -> object:
    here, there = await reset_behind_a_pause(world)
    before = list(there.calls)
    world.as_server(there.transport.write, b"x")
    await world.settle()
    return here.calls, before, there.calls


async def reset_seen_by_reading_on(world: World) -> object:
    here, there = await reset_behind_a_pause(world)
    world.as_server(there.transport.resume_reading)
    await world.settle()
    return here.calls, there.calls


async def large_write_then_close(world: World) -> object:
    here, there = Seen(), Seen()
    await world.pair(here, there)
    world.as_server(there.transport.pause_reading)
    world.as_client(here.transport.write, LARGE)
    world.as_client(here.transport.close)
    await world.settle()
    before = list(here.calls), here.transport.get_write_buffer_size() > 0
    world.as_server(there.transport.resume_reading)
    for _ in range(30):
        await world.settle()
        if there.calls[-1].startswith("lost"):
            break
    await world.settle()
    return before, here.calls, there.calls, there.nbytes


async def large_write_then_abort(world: World) -> object:
    here, there = Seen(), Seen()
    await world.pair(here, there)
    world.as_server(there.transport.pause_reading)
    world.as_client(here.transport.write, LARGE)
    world.as_client(here.transport.abort)
    await world.settle()
    world.as_server(there.transport.resume_reading)
    await world.settle()
    return here.calls, there.calls, 0 < there.nbytes < len(LARGE)


async def writes_that_are_not_possible(world: World) -> object:
    here, there = Seen(), Seen(keeps_open=True)
    await world.pair(here, there)
    world.as_client(here.transport.write_eof)
    found = []
    with pytest.raises(RuntimeError) as after_eof:
        world.as_client(here.transport.write, b"x")
    found.append(str(after_eof.value))
    world.as_client(here.transport.close)
    world.as_client(here.transport.close)
    await world.settle()
    with pytest.raises(RuntimeError):
        world.as_client(here.transport.write, b"x")
    world.as_client(here.transport.pause_reading)
    world.as_client(here.transport.resume_reading)
    world.as_client(here.transport.abort)
    return found, here.calls, there.calls


async def another_protocol_in_the_middle(world: World) -> object:
    here, there = Seen(), Seen()
    await world.pair(here, Buffered(2, there))
    world.as_client(here.transport.write, bytes(26))
    await world.settle()
    world.as_client(here.transport.close)
    await world.settle()
    return here.calls, there.calls, there.nbytes


async def a_buffer_that_is_filled_exactly(world: World) -> object:
    here, there = Seen(), Seen()
    await world.pair(here, Buffered(9, there))
    world.as_client(here.transport.write, bytes(20))
    await world.settle()
    return here.calls, there.calls


async def a_protocol_that_raises(world: World) -> object:
    here, there = Seen(), Broken()
    await world.pair(here, there)
    world.as_client(here.transport.write, b"x")
    await world.settle()
    world.end()
    return here.calls, there.calls, len(world.errors)


async def pause_within_a_read(world: World) -> object:
    class Pauses(Seen):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()

    here, there = Seen(), Pauses()
    await world.pair(here, there)
    world.as_client(here.transport.write, b"one")
    await world.settle()
    world.as_client(here.transport.write, b"two")
    world.as_client(here.transport.close)
    await world.settle()
    before = there.nbytes, list(there.calls)
    world.as_server(there.transport.resume_reading)
    await world.settle()
    after = there.nbytes, list(there.calls)
    world.as_server(there.transport.resume_reading)
    await world.settle()
    return here.calls, before, after, there.calls


async def closed_from_its_own_read(world: World) -> object:
    class Closes(Seen):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.write(b"bye")
            self.transport.close()

    here, there = Seen(), Closes()
    await world.pair(here, there)
    world.as_client(here.transport.write, b"one")
    await world.settle()
    return here.calls, here.nbytes, there.calls


async def watermarks(world: World) -> object:
    here, there = Seen(), Seen()
    await world.pair(here, there)
    world.as_server(there.transport.pause_reading)
    here.transport.set_write_buffer_limits(high=1_000_000)
    world.as_client(here.transport.write, LARGE)
    await world.settle()
    before = list(here.calls)
    world.as_server(there.transport.resume_reading)
    for _ in range(30):
        await world.settle()
        if here.calls[-1] == "resume":
            break
    return before, here.calls, here.transport.get_write_buffer_limits()


SCENARIOS: tuple[Scenario, ...] = (
    close_behind_data,
    half_close,
    end_of_stream_is_seen_again_by_whoever_reads_on,
    abort_with_nothing_unread,
    close_with_bytes_unread,
    write_to_who_has_closed,
    close_while_the_peer_does_not_read,
    reset_while_the_peer_does_not_read,
    reset_seen_by_reading_on,
    large_write_then_close,
    large_write_then_abort,
    writes_that_are_not_possible,
    another_protocol_in_the_middle,
    a_buffer_that_is_filled_exactly,
    a_protocol_that_raises,
    pause_within_a_read,
    closed_from_its_own_read,
    watermarks,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_same_calls(scenario: Scenario) -> None:
    async def real() -> object:
        world = World(asyncio.get_running_loop())
        try:
            return repr(await scenario(world))
        finally:
            # Or the loop would not close.
            for end in world.ends:
                end.transport.abort()
            await world.settle()

    loop = SimulatedLoop(1)

    async def simulated() -> object:
        world = World(loop)
        try:
            return repr(await scenario(world))
        finally:
            world.end()

    assert loop.run(simulated()) == uvloop.run(real())


def test_connections_that_nobody_accepted_are_reset_with_their_socket() -> None:
    async def real() -> list[str]:
        listening = socket.create_server(("127.0.0.1", 0))
        here = Seen()
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: here, "127.0.0.1", listening.getsockname()[1])
        listening.close()
        await asyncio.sleep(0.1)
        here.transport.abort()
        return here.calls

    loop = SimulatedLoop(1)

    async def simulated() -> list[str]:
        here = Seen()
        bound = loop.process("server").call(loop.network.bind, "", 9092, False)
        await loop.process("client").spawn(loop.create_connection(lambda: here, "server", 9092))
        bound.close()
        await asyncio.sleep(1)
        return here.calls

    assert loop.run(simulated()) == uvloop.run(real())
