"""A relay that counts what clients ask and what they are answered, API by API."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final, Self

from pidgate.protocol.headers import peek_request
from tests.support.byte_quotas import FETCH, Moment, fetch_head

HOST: Final = "127.0.0.2"
"""A gateway advertises it, so that its clients come to the relay on every port."""
_FIRST_WITH_SESSION: Final = 7
_FIRST_WITHOUT_REPLICA_ID: Final = 15
_NEW_SESSION: Final = 0
_JOIN_GROUP: Final = 11


@dataclass
class Seen:
    """What clients of one client id did.

    full       Fetches that begin a session
    partial    Fetches within a session
    errors     error codes of Fetch answers, without 0
    fetched    when they were given how many bytes by Fetch
    joined_s   when a member joined a group: each rebalance of the classic protocol makes all members join
    """

    full: int = 0
    partial: int = 0
    errors: Counter[int] = field(default_factory=Counter)
    fetched: list[Moment] = field(default_factory=list)
    joined_s: list[float] = field(default_factory=list)

    @property
    def passed_bytes(self) -> int:
        return sum(size for _, size in self.fetched)


class CountingRelay:
    """Relays these ports of HOST to the same ports of 127.0.0.1, in a thread of its own, within a `with` block."""

    def __init__(self, *ports: int) -> None:
        self._ports = ports
        self.seen: defaultdict[str, Seen] = defaultdict(Seen)
        """By client id."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        for port in self._ports:
            asyncio.run_coroutine_threadsafe(self._listen(port), self._loop).result(5)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _listen(self, port: int) -> None:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                there, back = await asyncio.open_connection("127.0.0.1", port)
                asked: dict[int, tuple[int, Seen]] = {}
                ways = [
                    asyncio.ensure_future(self._requests(reader, back, asked)),
                    asyncio.ensure_future(self._answers(there, writer, asked)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
                    back.close()
            writer.close()
            self._tasks.discard(task)

        self._servers.append(await asyncio.start_server(accepted, HOST, port))

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        await asyncio.sleep(0.1)  # what was accepted has become a task
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, Seen]]
    ) -> None:
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(size, "big"))
            head = peek_request(frame, 0, len(frame))
            seen = self.seen[head.client_id or ""]
            if head.api_key == _JOIN_GROUP:
                seen.joined_s.append(time.monotonic())
            if head.api_key == FETCH:
                asked[head.correlation_id] = head.api_version, seen
                if head.api_version >= _FIRST_WITH_SESSION:
                    at = head.body + (13 if head.api_version >= _FIRST_WITHOUT_REPLICA_ID else 17)
                    _, epoch = struct.unpack_from(">ii", frame, at)
                    seen.full += epoch == _NEW_SESSION
                    seen.partial += epoch > _NEW_SESSION
            writer.write(size + frame)
            await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, Seen]]
    ) -> None:
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(size, "big"))
            if (fetch := asked.pop(int.from_bytes(frame[:4], "big"), None)) is not None:
                version, seen = fetch
                seen.fetched.append((time.monotonic(), 4 + len(frame)))
                if code := fetch_head(frame, version).error_code:
                    seen.errors[code] += 1
            writer.write(size + frame)
            await writer.drain()
