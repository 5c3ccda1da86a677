"""Name resolution for connections to brokers, in threads of its own.

The event loop's getaddrinfo has four threads for all names. A name whose server does not answer holds one of
them for up to 40 s, so four such dials would stop all dialling.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Final

from pidgate.gateway.disk_thread import aside

LookUp = Callable[[str], Awaitable[Sequence[str]]]
"""Addresses of a host name. Raises OSError."""

WAIT_S: Final = 5.0
"""Half of the time to connect: the next candidate still has its turn."""
MOST_AT_ONCE: Final = 256
"""Names in resolution, each of which has a thread."""


async def look_up(host: str) -> Sequence[str]:
    """Ask the system, in a thread of its own that the end of the process does not wait for."""
    found = await aside(_addresses, host)
    return list(dict.fromkeys(found))


def _addresses(host: str) -> list[str]:
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


class Resolver:
    """One look-up per name at a time, shared by all connections that wait for it."""

    def __init__(self, look_up: LookUp = look_up) -> None:
        self._look_up = look_up
        self._running: dict[str, asyncio.Future[Sequence[str]]] = {}

    async def addresses(self, host: str) -> Sequence[str]:
        """Return a host's addresses, at least one. Raises OSError (gaierror), ValueError."""
        if _is_address(host):
            return [host]
        running = self._running.get(host)
        if running is None:
            if len(self._running) >= MOST_AT_ONCE:
                raise socket.gaierror(socket.EAI_AGAIN, "too many names are being resolved")
            running = self._running[host] = asyncio.ensure_future(self._look_up(host))
            running.add_done_callback(lambda done: self._ended(host, done))
        try:
            async with asyncio.timeout(WAIT_S):
                return await asyncio.shield(running)
        except TimeoutError:
            raise socket.gaierror(socket.EAI_AGAIN, "the name server does not answer") from None

    def _ended(self, host: str, done: asyncio.Future[Sequence[str]]) -> None:
        del self._running[host]
        if not done.cancelled():
            done.exception()  # its waiters have it, or are gone


@lru_cache(maxsize=1_024)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
