"""A transport that only writes down what is asked of it, for tests of one side of a connection at a time."""

from __future__ import annotations

import asyncio
from typing import Any


class PaperTransport(asyncio.Transport):
    """What a protocol wrote, the very objects; the kernel takes as much of it as the test says."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__({"peername": ("10.1.2.3", 5)})
        self.protocol = protocol
        self.written: list[Any] = []
        self.waiting_bytes = 0
        """What the peer has not taken."""
        self._reading = True
        self.aborted = False
        self._closing = False
        protocol.connection_made(self)

    def receive(self, data: bytes, most: int = 1 << 30) -> int:
        """The peer's bytes arrive, in reads of at most `most`, while the protocol reads; returns how many."""
        arrived = 0
        while arrived < len(data) and self._reading and not self._closing:
            target = memoryview(self.protocol.get_buffer(-1))
            step = min(most, len(target), len(data) - arrived)
            target[:step] = data[arrived : arrived + step]
            del target
            self.protocol.buffer_updated(step)
            arrived += step
        return arrived

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
