"""Connections of a listener behind proxies: the PROXY protocol header is read before everything else, TLS
included.

The header is required from the listed addresses and read from no other. Until it has arrived, the connection
has all limits of an idle one. From then on it counts for the client's address instead of the proxy's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, cast

from pidgate.gateway.proxy.client_channel import ClientChannel
from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.proxy_header import HEAD_BYTES, bytes_behind, check_beginning, origin

REFUSED: Final = "proxy"
"""Close cause of a connection whose header is missing or malformed."""

_REMEDY: Final = (
    "; listeners.proxy_protocol_from lists {address}: have it send version 2 (in HAProxy send-proxy-v2), "
    "or take it off"
)


class ProxyAddresses:
    """Addresses of trusted proxies."""

    def __init__(self, networks: Sequence[IPv4Network | IPv6Network]) -> None:
        self._networks = tuple(networks)

    def holds(self, host: str) -> bool:
        """Return whether a socket's address is one of them."""
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:  # not an IP socket
            return False
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or address
        return any(address in network for network in self._networks)


class AcceptedBehindProxy(asyncio.BufferedProtocol):
    """Protocol that reads the PROXY header, then hands the socket to the connection's own protocol, `inner`.

    It reads no byte beyond the header: the rest stays in the socket for the next protocol.
    """

    def __init__(self, channel: ClientChannel, inner: asyncio.BaseProtocol, proxies: ProxyAddresses) -> None:
        self._channel = channel
        self._inner = inner
        self._proxies = proxies
        self._transport: asyncio.Transport | None = None
        self._header = bytearray(HEAD_BYTES)
        self._filled = 0
        self._has_head = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = opened = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer is None or not self._proxies.holds(peer[0]):
            opened.set_protocol(self._inner)
        else:
            self._channel.awaits_origin()
        self._inner.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._header)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        try:
            if not self._has_head:
                check_beginning(bytes(self._header[: self._filled]))
                if self._filled < HEAD_BYTES:
                    return
                self._has_head = True
                # A new buffer: the event loop still holds the old one.
                self._header = self._header + bytes(bytes_behind(bytes(self._header)))
            if self._filled == len(self._header):
                self._hand_over()
        except MalformedFrame as error:
            connection = self._channel.connection
            address = connection.client.address
            connection.close(REFUSED, f"{error}{_REMEDY.format(address=address)}")

    def _hand_over(self) -> None:
        channel, transport = self._channel, self._transport
        assert transport is not None
        channel.connection.comes_from(origin(bytes(self._header)))
        if not channel.connection.is_gone:
            transport.set_protocol(self._inner)
            channel.socket.reads_itself()

    # All other events of the socket concern the next protocol only.

    def eof_received(self) -> bool | None:
        return cast(asyncio.Protocol, self._inner).eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
