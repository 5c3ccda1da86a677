"""Connections and the event loop of `pidgate load`, on loopback."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from pidgate.load.connection import Connection, ConnectionLost, connect
from pidgate.load.context import end_task
from pidgate.load.pacing import Due, new_event_loop, pace

HOST = "127.0.0.1"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await scenario

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(limited())


def before(serve: Serve, scenario: Callable[[Connection], Awaitable[None]], timeout_s: float = 10.0) -> None:
    async def play() -> None:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(served, HOST, 0)
        connection = await connect(server.sockets[0].getsockname()[:2], timeout_s)
        try:
            await scenario(connection)
        finally:
            connection.close()
            server.close()

    run(play())


def frame(correlation_id: int, body: bytes = b"") -> bytes:
    request = struct.pack(">hhi", 18, 0, correlation_id) + body
    return struct.pack(">i", len(request)) + request


def built(correlation_id: int, _client_id: str) -> bytes:
    return frame(correlation_id)


async def correlation_id_of_next(reader: asyncio.StreamReader) -> int:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return int(struct.unpack_from(">i", await reader.readexactly(size), 4)[0])


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def test_answers_belong_to_their_requests_however_they_are_cut() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ids = [await correlation_id_of_next(reader) for _ in range(3)]
        whole = b"".join(answer(id, b"x" * id) for id in ids)
        for at in range(len(whole)):
            writer.write(whole[at : at + 1])
            await writer.drain()

    async def scenario(connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        sent_s = loop.time()
        asked = [connection.send(frame(connection.next_correlation_id())) for _ in range(3)]
        answers = [await one for one in asked]
        assert [one.frame[4:] for one in answers] == [b"x", b"xx", b"xxx"]
        assert sent_s <= answers[0].arrived_s <= answers[2].arrived_s <= loop.time()

    before(serve, scenario)


def test_answers_may_be_larger_than_what_is_read_at_a_time() -> None:
    bodies = [bytes([number]) * size for number, size in enumerate((10, 5_000, 300_000, 4_081, 900_000, 0))]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ids = [await correlation_id_of_next(reader) for _ in bodies]
        writer.write(b"".join(answer(id, body) for id, body in zip(ids, bodies, strict=True)))
        await writer.drain()
        await reader.read()

    async def scenario(connection: Connection) -> None:
        asked = [connection.send(frame(connection.next_correlation_id())) for _ in bodies]
        assert [(await one).frame[4:] for one in asked] == bodies

    before(serve, scenario)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (b"", "closed by the other side"),
        (answer(7), "an answer to another request"),
        (struct.pack(">i", 1 << 30), "an answer of 1073741824 bytes"),
        (struct.pack(">i", -1), "an answer of -1 bytes"),
    ],
)
def test_everything_in_flight_is_lost_with_its_connection(wrong: bytes, why: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await correlation_id_of_next(reader)
        await correlation_id_of_next(reader)
        writer.write(wrong)
        await writer.drain()
        if wrong:
            await reader.read()

    async def scenario(connection: Connection) -> None:
        asked = [connection.send(frame(connection.next_correlation_id())) for _ in range(2)]
        for one in asked:
            with pytest.raises(ConnectionLost, match=why):
                await one
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            await connection.ask(built)

    before(serve, scenario)


def test_an_answer_that_does_not_come_ends_the_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await correlation_id_of_next(reader)))
        await reader.read()

    async def scenario(connection: Connection) -> None:
        await connection.ask(built)
        with pytest.raises(ConnectionLost, match=r"no answer within 0\.05 s"):
            await connection.ask(built)

    before(serve, scenario, timeout_s=0.05)


def test_everything_is_handed_out_not_before_its_time_and_also_when_it_is_late() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time() - 0.05
        wanted: list[Due] = [(number / 1_000, "steady", number) for number in range(100)]
        handed: list[Due] = []

        def hand_out(due: Due) -> None:
            assert loop.time() >= start_s + due[0]
            handed.append(due)

        own_delay = await pace(iter(wanted), start_s, hand_out, asyncio.Event())
        assert handed == wanted
        assert own_delay.count == 100
        assert own_delay.max_ms is not None
        assert own_delay.max_ms >= 49

    run(scenario())


def test_a_mistake_in_a_task_is_not_lost_with_it() -> None:
    async def scenario() -> None:
        async def mistaken() -> None:
            raise ZeroDivisionError

        async def busy() -> None:
            await asyncio.Event().wait()

        task = asyncio.ensure_future(mistaken())
        await asyncio.wait([task])
        with pytest.raises(ZeroDivisionError):
            end_task(task)
        working = asyncio.ensure_future(busy())
        end_task(working)
        with pytest.raises(asyncio.CancelledError):
            await working

    run(scenario())
