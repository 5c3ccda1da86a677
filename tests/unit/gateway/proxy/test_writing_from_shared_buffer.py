"""What is written out of the shared buffer leaves whole and in order, over real sockets of uvloop.

A copy is made only of what the kernel does not take. tests/image/test_compiled.py has the compiled modules pass this,
too: the first form of it sent bytes twice there (tests/unit/test_hot_modules.py).
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
import uvloop

from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES
from pidgate.gateway.proxy.client_channel import ClientChannel
from pidgate.gateway.proxy.reading import COPIED_BYTES, Data
from pidgate.gateway.proxy.receive_buffer import READ_VIEW
from tests.support.rules import rule
from tests.support.scene import Scene

MiB = 1 << 20


class Peer(asyncio.Protocol):
    """A channel at a socket of its own, which it only writes to."""

    def __init__(self, channel: ClientChannel) -> None:
        self._channel = channel
        self.is_full = self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = self._channel.socket.opened(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False

    def write(self, data: Data) -> None:
        self._channel.write(data)


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Peer, socket.socket]]:
    """Give who writes, and the other end of its connection."""
    scene = Scene()
    here, there = socket.socketpair()
    there.setblocking(False)
    with there, closing(scene.loop):
        channel = scene.connect().channel
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(lambda: Peer(channel), sock=here)
        try:
            yield peer, there
        finally:
            peer.transport.abort()


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(asyncio.wait_for(story(), 30))


async def taken(there: socket.socket, most_bytes: int) -> bytes:
    return await asyncio.get_running_loop().sock_recv(there, most_bytes)


def in_buffer(data: bytes) -> memoryview:
    READ_VIEW[: len(data)] = data
    return READ_VIEW[: len(data)]


SEEDS = range(20)


def slow_peer(seed: int) -> None:
    """Raises AssertionError unless it gets what was written."""
    dice = random.Random(seed)

    async def story() -> None:
        async with pair() as (peer, there):
            sent, received = bytearray(), bytearray()
            for _ in range(60):
                size = dice.choice((1, 300, COPIED_BYTES - 1, COPIED_BYTES, 100_000, READ_BUFFER_BYTES))
                data = dice.randbytes(size)
                sent += data
                peer.write(in_buffer(data) if dice.random() < 0.7 else data)
                in_buffer(bytes(size))  # the next turn is another's
                while len(received) < len(sent) and (peer.is_full or dice.random() < 0.5):
                    received += await taken(there, dice.choice((1000, 300_000, MiB)))
            while len(received) < len(sent):
                received += await taken(there, MiB)
            assert received == sent

    run(story)


@rule("Bytes reach a slow peer once and in order.", "order")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_peer_gets_all_of_it_in_order(seed: int) -> None:
    slow_peer(seed)


def test_the_transport_gets_nothing_that_the_kernel_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with pair() as (peer, there):
            written: list[int] = []
            os_write = os.write

            def counted(descriptor: int, data: bytes) -> int:
                written.append(os_write(descriptor, data))
                return written[-1]

            monkeypatch.setattr(os, "write", counted)
            peer.write(in_buffer(b"x" * 50_000))
            assert written == [50_000]
            assert len(await taken(there, MiB)) == 50_000

    run(story)


def test_a_transport_that_is_closing_is_not_written_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its descriptor's number may be another connection's by then."""

    async def story() -> None:
        async with pair() as (peer, there):
            peer.transport.abort()
            monkeypatch.setattr(os, "write", lambda *_: pytest.fail("written"))
            peer.write(in_buffer(b"x" * 50_000))
            await asyncio.sleep(0.01)
            assert await taken(there, MiB) == b""

    run(story)


def test_a_broken_connection_ends_as_any_other() -> None:
    async def story() -> None:
        async with pair() as (peer, there):
            there.close()
            peer.write(in_buffer(b"x" * 50_000))
            await asyncio.sleep(0.05)
            assert peer.is_lost

    run(story)
