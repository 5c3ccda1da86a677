"""An asyncio connection to a broker or gateway: sends frames, returns answers in order of the requests, with
times.

It knows sizes and correlation ids, no APIs. It has no back-pressure: frames sent faster than the socket
accepts them fill memory.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from typing import Final, NamedTuple, TypeVar

from pidgate.load.exchanges import Exchange
from pidgate.load.plan import Address
from pidgate.protocol.logins import Build

T = TypeVar("T")
REQUEST_TIMEOUT_S: Final = 30.0
"""Java's request.timeout.ms."""
_LONGEST_ANSWER: Final = 64 * 1024 * 1024
_INBOX_BYTES: Final = 4096
"""Initial size: there may be ten thousand connections."""


class ConnectionLost(OSError):
    """Closed by either side: requests in flight have no answer."""


class Answer(NamedTuple):
    """A frame without its size prefix, and the time at which its last byte was read (the event loop's clock)."""

    frame: bytes
    arrived_s: float


class Connection(asyncio.BufferedProtocol):
    """Made by `connect`. Closes itself when an answer does not arrive within `request_timeout_s`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, request_timeout_s: float, client_id: str) -> None:
        self.client_id = client_id
        self._loop = loop
        self._request_timeout_s = request_timeout_s
        self._inbox = bytearray(_INBOX_BYTES)
        self._received_bytes = 0
        self._pending: deque[tuple[int, float, asyncio.Future[Answer]]] = deque()
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._why = "closed by the other side"
        self.is_open = False

    def next_correlation_id(self) -> int:
        """Return the correlation id for the next frame."""
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        return self._correlation_id

    def send(self, frame: bytes) -> asyncio.Future[Answer]:
        """Send a frame (size prefix included). The future raises ConnectionLost."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        if self._transport is None or not self.is_open:
            answer.set_exception(ConnectionLost(self._why))
            return answer
        now_s = self._loop.time()
        self._pending.append((struct.unpack_from(">i", frame, 8)[0], now_s, answer))
        self._transport.write(frame)
        if self._watch is None:
            self._watch = self._loop.call_at(now_s + self._request_timeout_s, self._close_if_overdue)
        return answer

    async def ask(self, build: Build) -> Answer:
        """Send one request and wait for its answer. Raises ConnectionLost."""
        return await self.send(build(self.next_correlation_id(), self.client_id))

    async def run(self, exchange: Exchange[T]) -> T:
        """Carry out an exchange. Raises ConnectionLost and the exceptions of the exchange."""
        frame = None
        while True:
            try:
                build = next(exchange) if frame is None else exchange.send(frame)
            except StopIteration as end:
                result: T = end.value
                return result
            frame = (await self.ask(build)).frame

    def close(self) -> None:
        """Close immediately; requests in flight get no answer."""
        self._abort("closed here")

    def _abort(self, why: str) -> None:
        self._why = why
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _close_if_overdue(self) -> None:
        self._watch = None
        if not self._pending:
            return
        overdue_s = self._pending[0][1] + self._request_timeout_s
        if self._loop.time() >= overdue_s:
            self._abort(f"no answer within {self._request_timeout_s:g} s")
        else:
            self._watch = self._loop.call_at(overdue_s, self._close_if_overdue)

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.is_open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._inbox)[self._received_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        arrived_s = self._loop.time()
        self._received_bytes += nbytes
        at = 0
        while (left := self._received_bytes - at) >= 4:
            end = at + 4 + int(struct.unpack_from(">i", self._inbox, at)[0])
            if not at + 8 <= end <= at + _LONGEST_ANSWER:
                return self._abort(f"an answer of {end - at - 4} bytes")
            if left < end - at:
                if end - at > len(self._inbox):
                    # asyncio still holds a view of the old one, which therefore cannot grow.
                    larger = bytearray(end - at)
                    larger[:left] = memoryview(self._inbox)[at : self._received_bytes]
                    self._inbox, self._received_bytes, at = larger, left, 0
                break
            if not self._deliver(Answer(bytes(memoryview(self._inbox)[at + 4 : end]), arrived_s)):
                return self._abort("an answer to another request")
            at = end
        if at:
            self._received_bytes -= at
            self._inbox[: self._received_bytes] = self._inbox[at : at + self._received_bytes]
        return None

    def _deliver(self, answer: Answer) -> bool:
        correlation_id = struct.unpack_from(">i", answer.frame)[0]
        if not self._pending or self._pending[0][0] != correlation_id:
            return False
        waiting = self._pending.popleft()[2]
        if not waiting.done():
            waiting.set_result(answer)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._watch is not None:
            self._watch.cancel()
        pending, self._pending = self._pending, deque()
        for _, _, answer in pending:
            if not answer.done():
                answer.set_exception(ConnectionLost(str(exc or self._why)))
                # The caller may have stopped waiting: keep the event loop from logging the exception.
                answer.exception()


async def connect(
    address: Address,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    *,
    client_id: str = "pidgate-load",
    from_host: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> Connection:
    """Connect, from `from_host` if given, with TLS if there is a context.

    Raises OSError; ConnectionLost after `request_timeout_s`.
    """
    loop = asyncio.get_running_loop()
    local_address = None if from_host is None else (from_host, 0)
    connection = Connection(loop, request_timeout_s, client_id)
    try:
        async with asyncio.timeout(request_timeout_s):
            await loop.create_connection(
                lambda: connection,
                *address,
                local_addr=local_address,
                ssl=tls,
            )
    except TimeoutError as error:
        raise ConnectionLost(f"no connection to {address[0]}:{address[1]} in time") from error
    return connection
