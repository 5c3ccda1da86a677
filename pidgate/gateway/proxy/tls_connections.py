"""TLS of a connection's two sides: the accepted client and the dialled broker."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from pidgate.gateway.proxy.broker_channel import BrokerChannel
from pidgate.gateway.proxy.broker_login import BrokerLogin
from pidgate.gateway.proxy.buffers import Purpose
from pidgate.gateway.proxy.client_channel import ClientChannel
from pidgate.gateway.proxy.client_connection import ClientConnection
from pidgate.gateway.proxy.tls_transport import TlsTransport
from pidgate.gateway.tls.server_names import name_asked_for
from pidgate.gateway.tls.wording import of_broker, of_client

FAILED: Final = "tls"
"""Close cause of a client connection whose handshake failed."""


class AcceptedTls(TlsTransport):
    """TLS with a client. Its connection, with all limits, begins when it is accepted."""

    def __init__(
        self,
        channel: ClientChannel,
        context: ssl.SSLContext,
        handshake_ms: int,
        named: Callable[[str, ClientConnection], None] | None = None,
        certified: Callable[[bytes, ClientConnection], None] | None = None,
    ) -> None:
        """Set up TLS with a client.

        Before the first request `named` is called with the host name from the client's SNI, and `certified`
        with the client's certificate in DER.
        """
        connection = channel.connection
        at, share = connection.context, connection.share
        super().__init__(channel, context, at.loop, at.budget, share, Purpose.ENCRYPTED_REQUESTS, None)
        self._channel = channel
        self._connection = connection
        self._quotas = at.shared.connection_quotas
        self._handshake_ms = handshake_ms
        self._named = named
        self._certified = certified
        self._timer: asyncio.TimerHandle | None = None

    def began(self) -> None:
        connection = self._connection
        self._timer = self._loop.call_later(self._handshake_ms / 1000, self._too_slow)
        self._quotas.handshake_begins(connection, self._give_way, connection.context.now_ms())
        self._channel.connection_made(self.as_transport())

    def secured(self) -> None:
        self._handshake_over()
        if self._named is not None:
            self._named(name_asked_for(self._tls), self._connection)
        if self._certified is not None:
            certificate = self._tls.getpeercert(binary_form=True)
            if certificate is not None:
                self._certified(certificate, self._connection)

    def not_secured(self, error: Exception) -> None:
        if isinstance(error, ssl.SSLError):
            self._connection.close(FAILED, f"TLS could not be set up: {of_client(error)}")
        else:
            # Port checks only, such as a load balancer's every few seconds.
            self._connection.close("client", str(error))

    def lost(self, error: Exception | None) -> None:
        self._handshake_over()
        self._channel.connection_lost(error)

    def _too_slow(self) -> None:
        self._connection.close(FAILED, "TLS was not set up in time")

    def _give_way(self) -> None:
        self._connection.close(
            "limit", "its TLS was not set up while too many others were waiting for theirs"
        )

    def _handshake_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._quotas.handshake_over(self._connection)


class DialledTls(TlsTransport):
    """TLS with a broker. Its reader begins after the handshake. `done` gets the error if the handshake fails."""

    def __init__(
        self,
        reader: BrokerChannel | BrokerLogin,
        client: ClientConnection,
        context: ssl.SSLContext,
        host: str,
        header: bytes = b"",
    ) -> None:
        """Set up TLS with a broker. `header` is sent before the handshake."""
        at = client.context
        super().__init__(reader, context, at.loop, at.budget, client.share, Purpose.ENCRYPTED_ANSWERS, host)
        self._first = reader
        self._host = host
        self._header = header
        self._has_begun = False
        self.done: asyncio.Future[None] = at.loop.create_future()

    def began(self) -> None:
        if self._header and self._socket is not None:
            self._socket.write(self._header)

    def secured(self) -> None:
        if self.done.done():  # the dialling task was cancelled
            self.abort()
            return
        self._has_begun = True
        self.done.set_result(None)
        self._first.connection_made(self.as_transport())

    def not_secured(self, error: Exception) -> None:
        self._fail(error)
        self.abort()

    def lost(self, error: Exception | None) -> None:
        if self._has_begun:
            # With TLS 1.3 a broker refuses the gateway's certificate after the handshake.
            if isinstance(error, ssl.SSLError):
                error = ConnectionResetError(of_broker(error, self._host))
            self._reader.connection_lost(error)
        else:
            self._fail(error or ConnectionResetError("it closed before TLS was set up"))

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # marks the exception as retrieved: the dialling task may have been cancelled
