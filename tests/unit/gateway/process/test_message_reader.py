"""A link's messages are handled in turns of the event loop, all of them, in order."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import cast

import pytest
import uvloop

from pidgate.gateway.process import message_reader
from pidgate.gateway.process.message_reader import MESSAGES_PER_TURN, MessageReader
from pidgate.gateway.process.wire import Kind, Message, encoded

COUNT = 1_000


class Reading(asyncio.Protocol):
    """Keeps which number came in which turn of the loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.turn = 0
        self.got: list[tuple[int, int]] = []
        self.failures: list[Exception] = []
        self.lost = self.loop.create_future()
        self._next_turn()

    def _next_turn(self) -> None:
        self.turn += 1
        if not self.lost.done():
            self.loop.call_soon(self._next_turn)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.reader = MessageReader(cast(asyncio.Transport, transport), self.take, self.failures.append)

    def take(self, message: Message) -> None:
        if message.body == "fails":
            raise ValueError("this one cannot be handled")
        self.got.append((self.turn, message.body))

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        before_the_end = len(self.got)
        self.reader.end()
        self.lost.set_result(before_the_end)


def read(sent: bytes) -> Reading:
    """Send that over a real socket, which is closed behind it; return what came of it."""

    async def reading() -> Reading:
        here, there = socket.socketpair()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(sent))
        there.setblocking(False)
        assert there.send(sent) == len(sent)
        there.close()
        _, protocol = await asyncio.get_running_loop().create_connection(Reading, sock=here)
        await protocol.lost
        return protocol

    return uvloop.run(reading())


def numbered(count: int) -> bytes:
    return b"".join(encoded(Kind.OFFSETS, n) for n in range(count))


def most_in_a_turn(reading: Reading) -> int:
    return max(Counter(turn for turn, _ in reading.got).values())


def test_messages_of_one_read_are_handled_in_turns_and_in_order() -> None:
    reading = read(numbered(COUNT))
    assert [number for _, number in reading.got] == list(range(COUNT))
    assert most_in_a_turn(reading) == MESSAGES_PER_TURN
    assert reading.lost.result() == COUNT, "the end is read when all has been handled"
    assert reading.failures == []


def test_without_turns_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_reader, "MESSAGES_PER_TURN", 1_000_000)
    assert most_in_a_turn(read(numbered(COUNT))) > MESSAGES_PER_TURN


def test_what_waits_is_handled_when_the_link_ends() -> None:
    """A worker that dies has said what it let pass."""

    async def ended() -> Reading:
        here, there = socket.socketpair()
        transport, protocol = await asyncio.get_running_loop().create_connection(Reading, sock=here)
        protocol.reader.feed(numbered(COUNT))
        assert len(protocol.got) == MESSAGES_PER_TURN
        transport.abort()
        await protocol.lost
        there.close()
        return protocol

    assert [number for _, number in uvloop.run(ended()).got] == list(range(COUNT))


@pytest.mark.parametrize("place", [0, 3, 100])
def test_one_that_fails_drops_what_comes_after_it(place: int) -> None:
    sent = numbered(place) + encoded(Kind.OFFSETS, "fails") + numbered(COUNT)
    reading = read(sent)
    assert [number for _, number in reading.got] == list(range(place))
    (failure,) = reading.failures
    assert str(failure) == "this one cannot be handled"
