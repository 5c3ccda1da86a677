"""A transport that only writes down what is asked of it, for tests of one side of a connection at a time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from pidgate.gateway.proxy.reading import Reader
from pidgate.gateway.proxy.turns import Turns

LOOP_READ_BYTES = 256_000
"""What an event loop reads at once when it makes the bytes itself: uvloop has this number."""


class PaperTransport(asyncio.Transport):
    """What a protocol wrote, the very objects; the kernel takes as much of it as the test says."""

    shares_turn = False
    """Its reads come in one turn of the loop. Otherwise each has a turn of its own, unless its account waits."""

    def __init__(self, reader: Reader) -> None:
        super().__init__({"peername": ("10.1.2.3", 5)})
        self.protocol: asyncio.BaseProtocol = reader.as_protocol()
        self.written: list[Any] = []
        self.waiting_bytes = 0
        """What the peer has not taken."""
        self._reading = True
        self._turns: Turns | None = getattr(reader, "_turns", None)
        self.aborted = False
        self._closing = False
        self.protocol.connection_made(self)

    def receive(self, data: bytes, most: int = 1 << 30) -> int:
        """The peer's bytes arrive, in reads of at most `most`, while the protocol reads; returns how many."""
        arrived = 0
        while arrived < len(data) and self._reading and not self._closing:
            step = min(most, LOOP_READ_BYTES, len(data) - arrived)
            if self._turns is not None and not self.shares_turn:
                self._turns._now_ms = -1
            protocol = self.protocol
            if isinstance(protocol, asyncio.BufferedProtocol):
                target = memoryview(protocol.get_buffer(-1))
                step = min(step, len(target))
                target[:step] = data[arrived : arrived + step]
                del target
                protocol.buffer_updated(step)
            else:
                cast(asyncio.Protocol, protocol).data_received(data[arrived : arrived + step])
            arrived += step
        return arrived

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def sent(self) -> bytes:
        """Everything written so far, as it is now."""
        return b"".join(bytes(part) for part in self.written)

    def write(self, data: Any) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = self.aborted = True

    def lost(self, error: Exception | None = None) -> None:
        """The socket is gone."""
        self._closing = True
        self.protocol.connection_lost(error)
