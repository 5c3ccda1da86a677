"""A relay that is a bad network: it cuts, resets, slows down, or lets connections hang as a pulled cable does.

It runs in a thread of its own, so that tests drive it beside blocking clients. All connections share its state; what
was hung before `hang` ended stays dead for ever, since neither side of a half-open connection hears of it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from pidgate.load.plan import Address

HOST: Final = "127.0.0.1"
_CHUNK_BYTES: Final = 65_536
_SLOW_CHUNK_BYTES: Final = 1_000
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 s: the kernel sends RST instead of FIN."""


class _Connection:
    """Two sockets, and whether anything passes between them."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self.writers = writers
        self.passes = asyncio.Event()
        self.passes.set()

    def end(self, *, reset: bool) -> None:
        for writer in self.writers:
            found: socket.socket | None = writer.get_extra_info("socket")
            if reset and found is not None:
                with suppress(OSError):
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class FaultyRelay:
    """Listens on `port` (0: any) before `to`; usable in a `with` block."""

    def __init__(self, to: Address, port: int = 0) -> None:
        self._to = to
        self.port = port
        self.accepted = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-relay")
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._bytes_per_s = 0.0
        self._hangs = False

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def cut(self) -> None:
        """End all connections, and refuse new ones until `heal`."""
        self._run(self._cut)

    def reset(self) -> None:
        """Reset all connections; new ones pass."""
        self._run(self._reset)

    def lead_to(self, to: Address) -> None:
        """Replace what it stands before, as an upgrade behind an open port does: all connections end."""
        self._to = to
        self.reset()

    def slow(self, bytes_per_s: float) -> None:
        """Let so many bytes a second pass in each direction of each connection, until `heal`."""
        self._bytes_per_s = bytes_per_s

    def hang(self) -> None:
        """Let no byte and no end pass any more, on old connections and new ones, until `heal`."""
        self._run(self._hang)

    def heal(self) -> None:
        """A good network again, for connections that come from now on; those that hung are reset."""
        self._run(self._heal)

    def _run(self, work: Callable[[], object]) -> None:
        async def run() -> None:
            result = work()
            if asyncio.iscoroutine(result):
                await result

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accepted, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _cut(self) -> None:
        self._stop_listening()
        for connection in list(self._connections):
            connection.end(reset=False)

    def _reset(self) -> None:
        for connection in list(self._connections):
            connection.end(reset=True)

    def _hang(self) -> None:
        self._hangs = True
        for connection in self._connections:
            connection.passes.clear()

    async def _heal(self) -> None:
        self._bytes_per_s, self._hangs = 0.0, False
        for connection in list(self._connections):
            if not connection.passes.is_set():
                connection.end(reset=True)
        if self._server is None:
            await self._listen()

    async def _end(self) -> None:
        self._cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        connection = _Connection(writer)
        try:
            there, back = await asyncio.open_connection(*self._to)
            connection.writers = (writer, back)
            if self._hangs:
                connection.passes.clear()
            self._connections.add(connection)
            await asyncio.gather(
                self._hand_on(reader, back, connection), self._hand_on(there, writer, connection)
            )
        except OSError:
            pass
        finally:
            self._connections.discard(connection)
            self._tasks.discard(task)
            connection.end(reset=False)

    async def _hand_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        while True:
            data = await reader.read(_SLOW_CHUNK_BYTES if self._bytes_per_s else _CHUNK_BYTES)
            await connection.passes.wait()
            if not data:
                writer.write_eof()
                return
            if self._bytes_per_s:
                await asyncio.sleep(len(data) / self._bytes_per_s)
            writer.write(data)
            await writer.drain()
