"""A blocking connection to a broker or gateway, for programs and tests that send one request at a time."""

from __future__ import annotations

import socket
import struct
from typing import Final, Self, TypeVar

from pidgate.load.connection import ConnectionLost
from pidgate.load.exchanges import Exchange
from pidgate.load.plan import Address

T = TypeVar("T")
_ONE_READ: Final = 1 << 20


class BlockingConnection:
    """Connects when it is made; use it in a `with` block. Raises OSError; ConnectionLost when the other side closes."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str = "pidgate-load",
        timeout_s: float = 15.0,
        source_host: str = "",
    ) -> None:
        """Connect. `source_host`: local address to connect from; empty: any."""
        self.socket = socket.create_connection(address, timeout_s, (source_host, 0) if source_host else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes | bytearray) -> None:
        """Send bytes unchanged."""
        self.socket.sendall(data)

    def frame(self) -> bytes:
        """Return the next frame without its size prefix. Raises ConnectionLost."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def ask(self, framed: bytes) -> bytes:
        """Send one request and return the next frame. Raises ConnectionLost."""
        self.send(framed)
        return self.frame()

    def run(self, exchange: Exchange[T]) -> T:
        """Carry out an exchange. Raises ConnectionLost and the exceptions of the exchange."""
        answer = None
        while True:
            try:
                build = next(exchange) if answer is None else exchange.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            self._correlation_id += 1
            answer = self.ask(build(self._correlation_id, self.client_id))
            if struct.unpack_from(">i", answer)[0] != self._correlation_id:
                raise ConnectionLost("an answer to another request")

    def _exactly(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            try:
                part = self.socket.recv(min(length - len(parts), _ONE_READ))
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionLost(f"closed after {len(parts)} of {length} bytes")
            parts += part
        return bytes(parts)
