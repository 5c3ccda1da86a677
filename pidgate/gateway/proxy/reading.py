"""Reading from a socket in two shapes, between which one socket changes; reasons to pause.

While reads are small, each comes as bytes of its own (asyncio.Protocol): the event loop makes them, and what passes
unchanged is written on as it came. A large read, or one that ends inside a frame, turns the socket to reads into a
buffer that we choose (asyncio.BufferedProtocol): bulk is not copied twice, and a frame too large for the shared buffer
is read into one of its own. After MANY_SMALL_READS it turns back.

Bytes that come by themselves come as many as they are. Once the memory budget is spent, every socket therefore reads
into a buffer, which may be small.

What is written out of a shared buffer, as a memoryview, is there only now. The socket's peer is offered it first, and
only what the kernel does not take is copied: of bulk that is next to nothing.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Final, cast

from pidgate.gateway.proxy.buffers import BufferBudget
from pidgate.gateway.proxy.receive_buffer import READ_BUFFER, ReceiveBuffer

SMALL_READ_BYTES: Final = 64 * 1024
"""Up to this size a read is copied once, as bytes of its own; above, in pieces out of a buffer."""
MANY_SMALL_READS: Final = 64
"""In a row: turning costs two system calls."""

SCARCE_READ_BYTES: Final = 4 * 1024
"""The most that one read brings once the budget is spent: connections whose frames are small go on, and
those that begin a larger one have shown little of it before they wait."""

COPIED_BYTES: Final = 16 * 1024
"""To copy so few costs less than to ask the transport whether anything waits in it."""

Data = bytes | bytearray | memoryview
"""A memoryview is of a buffer that others use in the next turn."""

WRITE_HIGH_BYTES: Final = 128 * 1024
"""Back-pressure begins here: what a socket does not take waits in our memory, and the kernel's buffers are there to
have it go on meanwhile. With 512 KiB bulk cost the same, and the middle of a large frame 0.4 MB more."""

LINGER_S: Final = 30.0
"""Time for a closed socket to send what was written; a peer that takes nothing is cut off then."""


class Pause(IntEnum):
    """Reasons to read nothing from a socket: a bit each."""

    CONNECTING = 1
    """The broker is not connected yet."""
    PEER_BUSY = 2
    """The other side does not take what was read before."""
    HELD_FULL = 4
    """The read-ahead behind a mute is full, or its user has no room for more of it."""
    BUDGET = 8
    """There is no memory for the frame that has begun."""
    DRAINING = 16
    NOT_READING = 32
    """This peer does not take its own answers: what it asks next would only add to them."""
    MANY_IN_FLIGHT = 64
    """Too many requests wait for an answer, or too much of own answers behind them."""
    TOO_FAST = 128
    """Its user's connections come faster than they may."""
    TURN = 256
    """Others go first: see protocol/work.py."""


class ReadGate:
    """Reading of one socket: it goes on when no reason to pause is left."""

    __slots__ = ("_transport", "reasons")

    def __init__(self) -> None:
        self.reasons = 0
        """Bits of Pause; not an IntFlag, whose truth is a call of its own that every answer would pay for."""
        self._transport: asyncio.Transport | None = None

    def opened(self, transport: asyncio.Transport) -> None:
        """Reasons given before hold from now on."""
        self._transport = transport
        if self.reasons:
            transport.pause_reading()

    def closed(self) -> None:
        """The socket is gone: nothing here keeps it, or what it served, alive."""
        self._transport = None

    def pause(self, why: Pause) -> None:
        if not self.reasons and self._transport is not None:
            self._transport.pause_reading()
        self.reasons |= why

    def resume(self, why: Pause) -> None:
        if not self.reasons & why:
            return
        self.reasons &= ~why
        if not self.reasons and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


def run_of(buf: bytes | bytearray, start: int, end: int) -> Data:
    """Return buf[start:end] to be written: a whole buffer that nobody else writes to as it is, else a view."""
    return buf if buf is not READ_BUFFER and end - start == len(buf) else memoryview(buf)[start:end]


def write_view(transport: asyncio.Transport, descriptor: int, view: memoryview) -> None:
    """Write bytes that are there only now; `descriptor` as Reader._descriptor."""
    taken = _taken_at_once(transport, descriptor, view)
    if taken < len(view):
        transport.write(bytes(view[taken:]))


def _taken_at_once(transport: asyncio.Transport, descriptor: int, view: memoryview) -> int:
    """Offer the bytes to the kernel, and return how many it took.

    Nothing may wait in the transport, or they overtake it. One that is closing may have no descriptor any more: its
    number is another connection's then.
    """
    if (
        descriptor < 0
        or len(view) < COPIED_BYTES
        or transport.is_closing()
        or transport.get_write_buffer_size()
    ):
        return 0
    try:
        return os.write(descriptor, view)
    except OSError:  # it is full, or broken: the transport finds the same, and ends the connection
        return 0


class Reader(ABC):
    """A socket's protocol. An asyncio.Protocol by shape; without that base class, channels can be compiled."""

    def __init__(self, budget: BufferBudget, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._received = ReceiveBuffer()
        self._gate = ReadGate()
        self._budget = budget
        self._reads_large = False
        self._small_reads = 0
        """In a row, while it reads large."""
        self._descriptor = -1
        """Of the socket, where nothing but it is behind the transport; -1: there is TLS."""
        self._rest = b""
        """Bytes that were read and have to wait for the next turn."""

    def as_protocol(self) -> asyncio.Protocol:
        return cast(asyncio.Protocol, self)

    @property
    def is_lost(self) -> bool:
        """The socket is gone, or was never there."""
        return self._transport is None

    # ---- the two shapes --------------------------------------------------------------------------------

    @abstractmethod
    def data_received(self, data: bytes) -> None:
        """Take a read that came as bytes; nothing is kept of earlier ones."""

    @abstractmethod
    def next_buffer(self) -> memoryview:
        """Return the buffer for the next read."""

    @abstractmethod
    def buffer_filled(self, nbytes: int) -> None:
        """Take the bytes that were read into `next_buffer`."""

    def read_large(self) -> None:
        """Read into buffers from now on, until reads are small again."""
        transport = self._transport
        if not self._reads_large and transport is not None and not transport.is_closing():
            self._reads_large = True
            self._small_reads = 0
            transport.set_protocol(LargeReads(self))

    def reads_nothing_yet(self) -> None:
        """Leave the socket to another protocol: no read is turned to a buffer until `reads_itself`."""
        self._reads_large = True

    def reads_itself(self) -> None:
        """Take the socket, which reads small from now on, unless memory is spent."""
        self._reads_large = False
        if self._budget.is_full:
            self.read_large()

    def _opened(self, transport: asyncio.BaseTransport) -> asyncio.Transport:
        """The socket is there."""
        # uvloop's transports are asyncio's by shape, not by class.
        self._transport = opened = cast(asyncio.Transport, transport)
        opened.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        socket = transport.get_extra_info("socket")
        if socket is not None and transport.get_extra_info("ssl_object") is None:
            self._descriptor = socket.fileno()
        self._gate.opened(opened)
        if self._budget.is_full:
            self.read_large()
        return opened

    def _turn_back(self, nbytes: int) -> None:
        """After each read into a buffer."""
        if nbytes > SMALL_READ_BYTES or not self._received.is_plain or self._budget.is_full:
            self._small_reads = 0
            return
        self._small_reads += 1
        transport = self._transport
        if self._small_reads >= MANY_SMALL_READS and transport is not None and not transport.is_closing():
            self._reads_large = False
            transport.set_protocol(self.as_protocol())

    # ---- turns -----------------------------------------------------------------------------------------

    def _rest_later(self, rest: bytes) -> None:
        """Let others go first: `rest` is taken in the next turn, and nothing is read before."""
        self._rest = rest
        self._gate.pause(Pause.TURN)
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        rest, self._rest = self._rest, b""
        self._gate.resume(Pause.TURN)
        if self._transport is not None:
            self.take_rest(rest)

    @abstractmethod
    def take_rest(self, rest: bytes) -> None:
        """Go on with what had to wait."""

    # ---- what is the same in both ----------------------------------------------------------------------

    @abstractmethod
    def write(self, data: Data) -> None:
        """Send bytes to the peer, if it is still there."""

    def _send(self, transport: asyncio.Transport, data: Data) -> None:
        """Write to the reader's own transport."""
        if isinstance(data, memoryview):
            write_view(transport, self._descriptor, data)
        else:
            transport.write(data)

    def pause_reading(self, why: Pause) -> None:
        """Read nothing until all reasons to pause are gone."""
        self._gate.pause(why)

    def resume_reading(self, why: Pause) -> None:
        """Drop a reason to pause."""
        self._gate.resume(why)

    def close_when_written(self) -> None:
        """Close the socket once what was written has left, or LINGER_S have passed."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.close()
        if transport.get_write_buffer_size():
            self._loop.call_later(LINGER_S, transport.abort)

    @abstractmethod
    def eof_received(self) -> bool: ...

    @abstractmethod
    def connection_lost(self, exc: Exception | None) -> None: ...

    @abstractmethod
    def pause_writing(self) -> None: ...

    @abstractmethod
    def resume_writing(self) -> None: ...


class LargeReads(asyncio.BufferedProtocol):
    """Substitute of a reader at its transport while reads are large."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.next_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.buffer_filled(nbytes)

    def eof_received(self) -> bool:
        return self._reader.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.connection_lost(exc)

    def pause_writing(self) -> None:
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        self._reader.resume_writing()
