"""The broker connection of a client: dialled for the first bytes addressed to it, and the queue until it is
connected.

Silent clients, clients of another protocol and requests answered here reach no broker.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod

from pidgate.gateway.proxy.apis.responses import Buffer
from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES, Purpose
from pidgate.gateway.proxy.client_connection import ClientConnection
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.connection_state import LifeEvent
from pidgate.gateway.proxy.reading import Data, Pause, Reader


class BrokerSide(ClientConnection):
    """A client connection that dials a broker on demand."""

    def __init__(self, context: ConnectionContext) -> None:
        super().__init__(context)
        self.broker: Reader | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._early: list[bytes | bytearray] | None = None
        """Requests that wait for a broker being dialled. None: no dialling is in progress."""

    @abstractmethod
    def dial(self) -> asyncio.Task[None] | None:
        """Connect to the broker in the background; calls `broker_connected`, or closes the connection."""

    def to_broker(self, data: Data) -> None:
        """Send bytes to the broker. The first bytes start dialling; all bytes wait until it is connected."""
        if self.broker is not None:
            self.broker.write(data)
            return
        if self._early is None:
            if self.is_gone:
                return
            self._early = []
            self._enter(LifeEvent.DIAL)
            self._keep_place()
            self._gate.pause(Pause.CONNECTING)
            self._dialling = self.dial()
        self._early.append(bytes(data) if isinstance(data, memoryview) else data)
        self.share.hold(Purpose.TO_BROKER, self.share.held(Purpose.TO_BROKER) + len(data))

    def broker_connected(self, broker: Reader) -> None:
        """Forward the waiting requests and resume reading."""
        if self.is_gone:
            broker.close_when_written()
            return
        self.broker = broker
        self._enter(LifeEvent.BROKER_CONNECTED)
        if self._gate.reasons & Pause.NOT_READING:
            broker.pause_reading(Pause.PEER_BUSY)
        early = self._early or []
        self._early = self._dialling = None
        self.share.hold(Purpose.TO_BROKER, 0)
        for data in early:
            broker.write(data)
        self._gate.resume(Pause.CONNECTING)

    def broker_lost(self, reason: str, error: Exception | None) -> None:
        """Close the client's socket, so that the client learns at once that its requests in flight are lost."""
        if self.is_gone:
            return
        if self.conversation.is_quiet:
            self.close("broker", reason)
        else:
            self._counters.upstream_failures["reset" if error else "closed"] += 1
            self.close("upstream", f"{reason}, with {self.conversation.in_flight_count} requests in flight")

    def broker_busy(self, is_busy: bool) -> None:
        """Pause reading requests while the broker's socket accepts no more data."""
        if is_busy:
            self._counters.reads_paused += 1
            self._gate.pause(Pause.PEER_BUSY)
        else:
            self._gate.resume(Pause.PEER_BUSY)

    def _leave_broker(self) -> None:
        """Close the broker's socket or stop dialling: the client is gone."""
        if self._dialling is not None:
            self._dialling.cancel()
        if self._early is not None:
            self._early = self._dialling = None
            self.share.hold(Purpose.TO_BROKER, 0)
        # Drop the reference: the two form a cycle, and with thousands of connections coming and going the
        # cyclic collector would pause the event loop for hundreds of ms.
        broker, self.broker = self.broker, None
        if broker is None or broker.is_lost:
            self.share.end()
        else:
            broker.close_when_written()


def in_few_writes(frames: list[Buffer]) -> list[Buffer]:
    """Return the frames in the same order with small ones joined.

    A frame with a buffer of its own is not copied.
    """
    writes: list[Buffer] = []
    small: list[Buffer] = []
    for frame in frames:
        if len(frame) <= READ_BUFFER_BYTES:
            small.append(frame)
            continue
        if small:
            writes.append(b"".join(small))
            small.clear()
        writes.append(frame)
    if small:
        writes.append(b"".join(small))
    return writes
