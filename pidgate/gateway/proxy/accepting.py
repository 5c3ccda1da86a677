"""Ports that accept connections, and pause together while too many arrive.

A connection that arrives in a pause waits in the kernel's queue: it is neither refused nor closed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from pidgate.gateway.logs import Event, LogLimit, logger
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy.backlog import drop_new_connections
from pidgate.gateway.proxy.connection_quotas import ConnectionQuotas

log = logger()

BACKLOG: Final = 1024
"""Connections that may wait to be accepted: a fleet of clients comes back at the same moment after a restart."""
QUIET_MS: Final = 10_000
"""Time between two log lines about pauses."""
EMPTY_AFTER_S: Final = 0.1
"""Without a new connection for this long, the backlog is empty: a TCP handshake takes less."""
EMPTIED_WITHIN_S: Final = 1.0
"""Longest time to empty the backlog: a client whose first packet was dropped sends it again after a second."""
RETRY_MS: Final = 1_000
"""Time until a port without a free descriptor tries again."""


class Port:
    """One listening socket. `most_at_once`: connections that it accepts in a turn of the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bound: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        most_at_once: int = 1,
    ) -> None:
        self._loop = loop
        self._bound = bound
        self._make = make
        self._most_at_once = most_at_once
        self._servers: list[asyncio.Server] = []
        """Each accepts one connection a turn (uvloop)."""
        self._is_paused = self._is_closed = False

    async def accept(self) -> None:
        """Accept from now on, unless the port is paused or closed meanwhile.

        Raises OSError: no descriptor is free.
        """
        self._is_paused = False
        while len(self._servers) < self._most_at_once and not (self._is_paused or self._is_closed):
            # A duplicate, which a pause closes. The socket itself keeps listening.
            duplicate = self._bound.dup()
            try:
                server = await self._loop.create_server(self._make, sock=duplicate, backlog=BACKLOG)
            except OSError:
                duplicate.close()
                raise
            self._servers.append(server)
        if self._is_paused or self._is_closed:
            self._close_servers()

    def drop_new_connections(self) -> None:
        """Have the kernel open no more connections; those that are open are still accepted."""
        if not self._is_closed:
            drop_new_connections(self._bound)

    def pause(self) -> None:
        self._is_paused = True
        self._close_servers()

    def close(self) -> None:
        self.pause()
        self._is_closed = True
        self._bound.close()

    def _close_servers(self) -> None:
        while self._servers:
            self._servers.pop().close()


class Accepting:
    """All ports of a process: they accept as long as its connection quotas allow."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        quotas: ConnectionQuotas,
        counters: Counters,
    ) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._quotas = quotas
        self._counters = counters
        self._ports: list[Port] = []
        self._resuming: set[asyncio.Task[None]] = set()
        self._is_paused = False
        self._accepted = 0
        self._lines = LogLimit(QUIET_MS)
        self._failures = LogLimit(QUIET_MS)

    async def add(self, port: Port) -> None:
        """Add a port. It accepts while the others do, or later if no descriptor is free now."""
        self._ports.append(port)
        if not self._is_paused:
            await self._accept(port)

    async def _accept(self, port: Port) -> None:
        try:
            await port.accept()
        except OSError as error:
            # Without a retry here the port would listen for ever and accept nothing.
            left_out = self._failures.take(None, self._now_ms())
            if left_out is not None:
                reason = error.strerror or str(error)
                log.error(Event.ACCEPTING_FAILED, reason=reason, retry_ms=RETRY_MS, suppressed_count=left_out)
            self._loop.call_later(RETRY_MS / 1000, self._resume, port)

    async def empty(self) -> None:
        """Stop opening connections, and accept those in the backlog, because closing a port resets them."""
        for port in self._ports:
            port.drop_new_connections()
        give_up_s = self._loop.time() + EMPTIED_WITHIN_S
        before = -1
        while (self._is_paused or self._accepted != before) and self._loop.time() < give_up_s:
            before = self._accepted
            await asyncio.sleep(EMPTY_AFTER_S)

    def check_limits(self) -> None:
        """Pause if too many have arrived; called after each accepted connection."""
        self._accepted += 1
        now_ms = self._now_ms()
        pause_ms = self._quotas.pause_ms(now_ms)
        if not pause_ms or self._is_paused:
            return
        self._is_paused = True
        self._counters.connections_delayed["all"] += 1
        if self._lines.take(None, now_ms) is not None:
            log.warning(
                Event.ACCEPTING_PAUSED, connections=self._counters.connections_open, pause_ms=pause_ms
            )
        for port in self._ports:
            port.pause()
        self._loop.call_later(pause_ms / 1000, self._look_again)

    def _look_again(self) -> None:
        pause_ms = self._quotas.pause_ms(self._now_ms())
        if pause_ms:
            self._loop.call_later(pause_ms / 1000, self._look_again)
            return
        self._is_paused = False
        for port in self._ports:
            self._resume(port)

    def _resume(self, port: Port) -> None:
        if self._is_paused:  # the end of the pause resumes all ports
            return
        task = self._loop.create_task(self._accept(port))
        self._resuming.add(task)
        task.add_done_callback(self._resuming.discard)
