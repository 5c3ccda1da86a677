"""A broker's socket during the gateway's own login for a client, before the broker channel.

The channel takes the socket over together with the answer to the last token, so it handles no login traffic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Final

from pidgate.gateway.proxy.broker_channel import BrokerChannel
from pidgate.gateway.proxy.client_connection import ClientConnection
from pidgate.gateway.proxy.reading import Data, Reader
from pidgate.gateway.proxy.receive_buffer import READ_VIEW, SIZE_BYTES, frame_size
from pidgate.protocol.errors import FrameTooLarge
from pidgate.protocol.logins import Build
from pidgate.protocol.messages import CLIENT_ID

MOST_ANSWER_BYTES: Final = 64 * 1024
"""Largest answer. ApiVersions lists about a hundred APIs of a few bytes each; the others are shorter."""


class BrokerLogin(Reader):
    """Reader that runs a login exchange over the socket. `done` gets the exchange's result or its error."""

    def __init__(
        self, connection: ClientConnection, exchange: Generator[Build, bytes, int], header: bytes = b""
    ) -> None:
        """Set up the login. `header` is sent before everything else."""
        super().__init__(connection.context.budget, connection.context.loop)
        self._connection = connection
        self._exchange = exchange
        self._header = header
        self._answer = b""
        self._correlation_id = 0
        self.done: asyncio.Future[int] = connection.context.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        opened = self.socket.opened(transport)
        if self._header:
            opened.write(self._header)
        self._say(next(self._exchange))

    def data_received(self, data: bytes) -> None:
        self._answer += data
        try:
            while len(self._answer) >= SIZE_BYTES and not self.done.done():
                size = frame_size(self._answer, 0)
                if not 0 <= size <= MOST_ANSWER_BYTES:
                    self._fail(FrameTooLarge(f"an answer of {size} bytes to a login"))
                    return
                end = SIZE_BYTES + size
                if len(self._answer) < end:
                    return
                answer, self._answer = self._answer[SIZE_BYTES:end], self._answer[end:]
                self._say(self._exchange.send(answer))
        except StopIteration as last:
            self._hand_over(last.value)
        except Exception as error:  # noqa: BLE001 - passed to the dialling task
            self._fail(error)

    def next_buffer(self) -> memoryview:
        return READ_VIEW

    def buffer_filled(self, nbytes: int) -> None:
        self.data_received(bytes(READ_VIEW[:nbytes]))

    def take_rest(self, rest: bytes | bytearray) -> None:
        """Do nothing: a login leaves no bytes for a later turn."""

    def write(self, data: Data) -> None:
        self.socket.write(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.socket.closed()
        self._fail(exc or ConnectionResetError("it closed during the login"))

    def pause_writing(self) -> None:
        """Do nothing: a login is short."""

    def resume_writing(self) -> None:
        """Do nothing: a login is short."""

    def _say(self, build: Build) -> None:
        self._correlation_id += 1
        self.write(build(self._correlation_id, CLIENT_ID))

    def _hand_over(self, session_lifetime_ms: int) -> None:
        if self.socket.is_lost or self.done.done():
            self.socket.abort()
            return
        transport = self.socket.closed()
        assert transport is not None
        channel = BrokerChannel(self._connection)
        transport.set_protocol(channel.as_protocol())
        self.done.set_result(session_lifetime_ms)
        channel.connection_made(transport)

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # marks the exception as retrieved: the dialling task may have been cancelled
        self.socket.abort()
