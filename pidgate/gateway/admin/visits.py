"""Connections of the admin address, bounded in number, in time, and in the bytes of their answers.

aiohttp bounds none of the three. Each connection carries one request. Import only after the listeners are up:
aiohttp's import takes as long as all others together.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

LIFE_S: Final = 15.0
"""Time for the TLS handshake, the request and the answer together. pidgate's own commands wait as long."""
MOST_BYTES: Final = 128 * 2**20
"""For all connections and their answers."""
CONNECTION_BYTES: Final = 2**20
"""Counted for a connection: the largest request body that aiohttp reads (client_max_size)."""
SLOW_AFTER_S: Final = 5.0
"""A client that takes no event for so long loses its stream."""
_PORTION_BYTES: Final = 64 * 1024
"""An answer is written in portions, because a socket's buffer would hold a second copy of the rest."""


class Visits:
    """All connections of one admin address, each with a task.

    Above MOST_BYTES the address with the most bytes loses its oldest connection: silent scrapers, or those
    that read nothing, do not keep a health check out.
    """

    def __init__(self, server: web.Server, tls: ssl.SSLContext | None) -> None:
        self._server = server
        self._tls = tls
        self._bytes: dict[str, dict[asyncio.Task[None], int]] = {}
        """Bytes of each connection, by its client's address, in order of arrival."""

    async def accept(self, listening: socket.socket) -> None:
        """Accept connections until cancelled. Raises OSError: no descriptor is free."""
        loop = asyncio.get_running_loop()
        while True:
            accepted, (host, *_) = await loop.sock_accept(listening)
            visit = loop.create_task(self._serve(accepted, host))
            visit.add_done_callback(partial(self._end, accepted, host))
            self.count_bytes(visit, host, CONNECTION_BYTES)

    async def _serve(self, accepted: socket.socket, host: str) -> None:
        """Serve one connection to its end, from before its TLS handshake."""
        loop, tls, transport = asyncio.get_running_loop(), self._tls, None
        visit = asyncio.current_task()
        assert visit is not None
        http = _Http(self._server, partial(self.count_bytes, visit, host))
        try:
            async with asyncio.timeout(LIFE_S) as http.end:
                transport, _ = await loop.connect_accepted_socket(
                    lambda: http, accepted, ssl=tls, ssl_handshake_timeout=None if tls is None else LIFE_S
                )
                await http.lost
        except OSError:
            pass  # its time is over, or it speaks no TLS
        finally:
            if transport is not None:
                # Not closed: a client that reads nothing would keep the socket.
                transport.abort()

    def count_bytes(self, visit: asyncio.Task[None], host: str, nbytes: int) -> None:
        """Count bytes for a connection, and cut off others if there are too many."""
        of_host = self._bytes.setdefault(host, {})
        of_host[visit] = of_host.get(visit, 0) + nbytes
        while sum(sum(of_one.values()) for of_one in self._bytes.values()) > MOST_BYTES:
            most = max(self._bytes, key=lambda host: sum(self._bytes[host].values()))
            oldest = next(iter(self._bytes[most]))
            if oldest is visit:
                break
            self._forget(most, oldest)
            oldest.cancel()

    def _end(self, accepted: socket.socket, host: str, visit: asyncio.Task[None]) -> None:
        """Close its socket, also of one that was cut off before its first step."""
        self._forget(host, visit)
        accepted.close()

    def _forget(self, host: str, visit: asyncio.Task[None]) -> None:
        of_host = self._bytes.get(host, {})
        of_host.pop(visit, None)
        if not of_host:
            self._bytes.pop(host, None)

    def cut_off(self) -> None:
        """Cut off all connections."""
        for of_host in self._bytes.values():
            for visit in of_host:
                visit.cancel()


class _Http(RequestHandler):
    """HTTP on one connection. `count_bytes` counts those of the answer for as long as the connection lasts."""

    __slots__ = ("count_bytes", "end", "lost")

    def __init__(self, server: web.Server, count_bytes: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, access_log=None)  # type: ignore[arg-type]
        self.count_bytes = count_bytes
        self.end: asyncio.Timeout | None = None
        """Cuts the connection off."""
        self.lost: asyncio.Future[None] = loop.create_future()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if not self.lost.done():
            self.lost.set_result(None)


async def send(request: web.Request, body: bytes, content_type: str) -> web.StreamResponse:
    """Answer with a body of any length, as fast as the client reads."""
    response = web.StreamResponse(
        headers={
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        }
    )
    http = request.protocol
    assert isinstance(http, _Http)
    http.count_bytes(len(body))
    with suppress(ConnectionError):  # the client has gone, or was cut off
        await response.prepare(request)
        for at in range(0, len(body), _PORTION_BYTES):
            await response.write(body[at : at + _PORTION_BYTES])
        await response.write_eof()
    return response


class Stream:
    """Server-sent events to one client, without an end."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
            }
        )

    async def begin(self) -> None:
        """Send the head, and let the connection live on."""
        http = self._request.protocol
        assert isinstance(http, _Http)
        await self.response.prepare(self._request)
        if http.end is not None:
            http.end.reschedule(None)

    async def send(self, data: bytes) -> None:
        """Send an event. Raises ConnectionError; TimeoutError for a client that reads too slowly."""
        async with asyncio.timeout(SLOW_AFTER_S):
            await self.response.write(b"data: " + data + b"\n\n")


async def close_after_answer(_request: web.Request, response: web.StreamResponse) -> None:
    """Let a connection end with its answer (aiohttp's on_response_prepare)."""
    response.force_close()
