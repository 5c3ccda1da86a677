"""The way of a client connection to its broker: dialled for the first bytes, which wait until it is connected.

Silent clients, clients of another protocol and requests answered here reach no broker.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from pidgate.gateway.proxy.buffers import BudgetShare, Purpose
from pidgate.gateway.proxy.reading import Data, Pause, Reader, ReadGate


class Dials(Protocol):
    """A connection that can dial its broker. No callable: a bound method takes 64 bytes of each connection."""

    def dial_broker(self) -> asyncio.Task[None] | None:
        """Connect in the background; `BrokerLink.connected` is called in the end, or the connection closes."""


class BrokerLink:
    """The broker's socket of one connection, or the bytes that wait for it."""

    __slots__ = ("_connection", "_dialling", "_early", "_gate", "_share", "channel")

    def __init__(self, gate: ReadGate, share: BudgetShare, connection: Dials) -> None:
        """Set up the link of the client with this gate."""
        self.channel: Reader | None = None
        """None: not connected."""
        self._gate = gate
        self._share = share
        self._connection = connection
        self._dialling: asyncio.Task[None] | None = None
        self._early: list[bytes | bytearray] | None = None
        """Requests that wait for a broker being dialled. None: no dialling is in progress."""

    def send(self, data: Data) -> None:
        """Send bytes to the broker. The first bytes start dialling; all bytes wait until it is connected."""
        if self.channel is not None:
            self.channel.write(data)
            return
        if self._early is None:
            self._early = []
            self._gate.pause(Pause.CONNECTING)
            self._dialling = self._connection.dial_broker()
        self._early.append(bytes(data) if isinstance(data, memoryview) else data)
        self._share.hold(Purpose.TO_BROKER, self._share.held(Purpose.TO_BROKER) + len(data))

    def connected(self, channel: Reader) -> None:
        """Forward the waiting requests and resume reading."""
        self.channel = channel
        if self._gate.reasons & Pause.NOT_READING:
            channel.socket.gate.pause(Pause.PEER_BUSY)
        early = self._drop_early()
        for data in early:
            channel.write(data)
        self._gate.resume(Pause.CONNECTING)

    def client_reads(self, reads: bool) -> None:
        """Read the broker's answers only while the client reads them."""
        if self.channel is None:
            return
        if reads:
            self.channel.socket.gate.resume(Pause.PEER_BUSY)
        else:
            self.channel.socket.gate.pause(Pause.PEER_BUSY)

    def leave(self) -> bool:
        """Close the broker's socket or stop dialling: the client is gone. Returns whether a socket is left."""
        if self._dialling is not None:
            self._dialling.cancel()
        self._drop_early()
        # Drop the reference: the two form a cycle, and with thousands of connections coming and going the
        # cyclic collector would pause the event loop for hundreds of ms.
        channel, self.channel = self.channel, None
        if channel is None or channel.socket.is_lost:
            return False
        channel.close_when_written()
        return True

    def _drop_early(self) -> list[bytes | bytearray]:
        """Return the waiting bytes, and hold them no longer."""
        if self._early is None:
            return []
        early, self._early, self._dialling = self._early, None, None
        self._share.hold(Purpose.TO_BROKER, 0)
        return early
