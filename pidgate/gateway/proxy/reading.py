"""Reading from a socket in two modes, small and large, and reasons to pause.

In small mode each read arrives as its own bytes object (asyncio.Protocol), made by the event loop, and data
that passes unchanged is written as that object. A large read, or one that ends inside a frame, switches the
socket to reads into a provided buffer (asyncio.BufferedProtocol): bulk data is copied once less, and a frame
too large for the shared buffer is read into its own. After MANY_SMALL_READS it switches back.

The size of a small-mode read cannot be limited. Once the memory budget is spent, every socket therefore reads
into a buffer, which may be small.

A memoryview of a shared buffer is valid only in the current turn. It is offered to the kernel first, and only
the unsent rest is copied: for bulk data next to nothing.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from typing import Final, cast

from pidgate.gateway.lane.lanes import Left, LentTo
from pidgate.gateway.proxy.buffers import BufferBudget
from pidgate.gateway.proxy.keepalive import keep_alive
from pidgate.gateway.proxy.receive_buffer import READ_BUFFER, ReceiveBuffer
from pidgate.protocol.proxy_header import Origin

SMALL_READ_BYTES: Final = 64 * 1024
"""Up to this size a read is copied once, as its own bytes object; larger reads go through a buffer."""
MANY_SMALL_READS: Final = 64
"""Small reads in a row before switching back, which costs two system calls."""

SCARCE_READ_BYTES: Final = 4 * 1024
"""Most bytes of a read once the budget is spent. Connections with small frames continue, and those that begin
a larger frame hold little of it before they wait."""

COPIED_BYTES: Final = 16 * 1024
"""Copying up to this size costs less than asking whether the transport has unsent data."""

Data = bytes | bytearray | memoryview
"""A memoryview refers to a buffer that is reused in the next turn."""

WRITE_HIGH_BYTES: Final = 32 * 1024
"""Back-pressure, and the count of unsent data, begins here. Unsent data waits in process memory, while the kernel's
buffers keep the socket busy."""

LINGER_S: Final = 30.0
"""Time for a closed socket to send its unsent data. A peer that reads nothing is cut off afterwards."""


class Pause(IntEnum):
    """Reasons to pause reading from a socket, one bit each."""

    CONNECTING = 1
    """The broker is not connected yet."""
    PEER_BUSY = 2
    """The other side accepts no more data."""
    HELD_FULL = 4
    """The read-ahead behind a mute is full, or its user has no room for more of it."""
    BUDGET = 8
    """There is no memory for the frame that has begun."""
    DRAINING = 16
    NOT_READING = 32
    """This peer does not read its own answers; further requests would only add to them."""
    MANY_IN_FLIGHT = 64
    """Too many requests are in flight, or too many own answers wait behind them."""
    TOO_FAST = 128
    """The connections of its user arrive faster than allowed."""
    TURN = 256
    """Its account has to wait for its turn: see turns.py."""


class ReadGate:
    """Reading of one socket: active while no reason to pause applies."""

    __slots__ = ("_transport", "paused_since_ms", "reasons", "take_back")

    def __init__(self) -> None:
        self.take_back: Callable[[], None] | None = None
        """Takes the socket back from a lane. None: it is not lent."""
        self.reasons = 0
        """Bits of Pause. Not an IntFlag, whose truth test is a call on every answer."""
        self.paused_since_ms = 0
        """Since when reading pauses, to a second; 0: it does not, or has only just begun."""
        self._transport: asyncio.Transport | None = None

    def opened(self, transport: asyncio.Transport) -> None:
        """Attach the socket; pause it if a reason was given earlier."""
        self._transport = transport
        if self.reasons:
            transport.pause_reading()

    def closed(self) -> None:
        """Drop the transport, so that it and its reader can be freed."""
        self._transport = None

    def recall(self) -> None:
        """Take the socket back from a lane, if it is lent."""
        if self.take_back is not None:
            self.take_back()

    def pause(self, why: Pause) -> None:
        self.recall()
        if not self.reasons and self._transport is not None:
            self._transport.pause_reading()
        self.reasons |= why

    def resume(self, why: Pause) -> None:
        if not self.reasons & why:
            return
        self.reasons &= ~why
        if not self.reasons:
            self.paused_since_ms = 0
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def note_pause(self, now_ms: int) -> None:
        """Note since when reading pauses; called about once a second."""
        if self.reasons and not self.paused_since_ms:
            self.paused_since_ms = now_ms


def run_of(buf: bytes | bytearray, start: int, end: int) -> Data:
    """Return buf[start:end] for writing: a whole private buffer as it is, else a view."""
    return buf if buf is not READ_BUFFER and end - start == len(buf) else memoryview(buf)[start:end]


def bytes_of(buf: bytes | bytearray, start: int, end: int) -> bytes | bytearray:
    """Return buf[start:end] to be kept beyond this turn: a whole private buffer as it is, else a copy."""
    is_whole = buf is not READ_BUFFER and end - start == len(buf)
    return buf if is_whole else bytes(memoryview(buf)[start:end])


def write_view(transport: asyncio.Transport, descriptor: int, view: memoryview) -> None:
    """Write bytes that are valid only in this turn. `descriptor`: see Socket.descriptor."""
    taken = _taken_at_once(transport, descriptor, view)
    if taken < len(view):
        transport.write(bytes(view[taken:]))


def _taken_at_once(transport: asyncio.Transport, descriptor: int, view: memoryview) -> int:
    """Offer the bytes to the kernel; return the number sent.

    Nothing may be unsent in the transport, or these bytes would overtake it. A closing transport may have
    lost its descriptor, whose number may belong to another connection by then.
    """
    if descriptor < 0 or transport.is_closing() or transport.get_write_buffer_size():
        return 0
    try:
        return os.write(descriptor, view)
    except OSError:  # full or broken: the transport finds the same and ends the connection
        return 0


class Socket:
    """The socket of one reader: its transport, its mode of reading, and the bytes between two reads."""

    __slots__ = (
        "_budget",
        "_descriptor",
        "_is_kept_alive",
        "_loop",
        "_reader",
        "_reads_large",
        "_small_reads",
        "_transport",
        "gate",
        "is_parked",
        "received",
        "rest",
    )

    def __init__(self, reader: Reader, budget: BufferBudget, loop: asyncio.AbstractEventLoop) -> None:
        self._reader = reader
        self._budget = budget
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self.received = ReceiveBuffer()
        self.gate = ReadGate()
        self._reads_large = False
        self._small_reads = 0
        """Small reads in a row in large mode."""
        self._descriptor: int | None = None
        """None: not looked up yet. A connection that ends soon never needs it."""
        self._is_kept_alive = False
        self.rest: bytes | bytearray = b""
        """Bytes read but deferred to the next turn."""
        self.is_parked = False

    def opened(self, transport: asyncio.BaseTransport) -> asyncio.Transport:
        """Attach the transport. Returns it."""
        # uvloop's transports are asyncio's by shape, not by class.
        self._transport = opened = cast(asyncio.Transport, transport)
        opened.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self.gate.opened(opened)
        if self._budget.is_full:
            self.read_large()
        return opened

    def closed(self) -> asyncio.Transport | None:
        """Detach the transport, which is closed or goes to another reader. Returns it."""
        transport, self._transport = self._transport, None
        self.gate.closed()
        return transport

    @property
    def is_lost(self) -> bool:
        """Return whether the socket is closed or was never open."""
        return self._transport is None

    @property
    def is_open(self) -> bool:
        """Return whether the socket is open and not closing."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def descriptor(self) -> int:
        """File descriptor of a plain socket; -1 with TLS, or if it is closed."""
        if self._descriptor is None:
            transport = self._transport
            if transport is None or transport.is_closing():
                return -1
            socket = transport.get_extra_info("socket")
            is_plain = socket is not None and transport.get_extra_info("ssl_object") is None
            self._descriptor = socket.fileno() if is_plain else -1
        return self._descriptor

    def keep_alive(self) -> None:
        """Turn keepalive on. Called about once a second: a crash loop's connections end before the first time."""
        transport = self._transport
        if not self._is_kept_alive and transport is not None and not transport.is_closing():
            self._is_kept_alive = True
            socket = transport.get_extra_info("socket")
            if socket is not None:
                keep_alive(socket)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def endpoints(self) -> Origin | None:
        """Return the peer's address and the address it is connected to. None: unknown."""
        if self._transport is None:
            return None
        ends = (self._transport.get_extra_info(name) for name in ("peername", "sockname"))
        source, destination = (None if end is None else (end[0], end[1]) for end in ends)
        return None if source is None or destination is None else Origin(source, destination)

    def write(self, data: Data) -> bool:
        """Send bytes to the peer. Returns False if it is not connected any more."""
        transport = self._transport
        if transport is None:
            return False
        self.gate.recall()
        if not isinstance(data, memoryview):
            transport.write(data)
        elif len(data) < COPIED_BYTES:
            transport.write(bytes(data))
        else:
            write_view(transport, self.descriptor, data)
        return True

    def close_when_written(self) -> None:
        """Close the socket after unsent data has left, or after LINGER_S."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.gate.recall()
        transport.close()
        if transport.get_write_buffer_size():
            self._loop.call_later(LINGER_S, transport.abort)

    def abort(self) -> None:
        """Close the socket now. Unsent data is lost."""
        self.gate.recall()
        if self._transport is not None:
            self._transport.abort()

    # ---- a lane ----------------------------------------------------------------------------------------

    @property
    def has_tls(self) -> bool:
        return self.descriptor < 0

    @property
    def may_be_lent(self) -> bool:
        """Return whether nothing waits here, in either direction."""
        transport = self._transport
        return (
            transport is not None
            and not self.gate.reasons
            and not self.rest
            and self.received.is_plain
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        )

    def lend(self) -> int:
        """Read and write nothing until `take_back`; return the descriptor."""
        assert self._transport is not None
        self._transport.pause_reading()
        return self.descriptor

    def take_back(self, unsent: bytes) -> None:
        """Go on as before. `unsent`: counted already, and not yet sent."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if unsent:
                transport.write(unsent)
            if not self.gate.reasons:
                transport.resume_reading()

    # ---- the two modes ---------------------------------------------------------------------------------

    def read_large(self) -> None:
        """Switch to large mode, until reads are small again."""
        transport = self._transport
        if not self._reads_large and transport is not None and not transport.is_closing():
            self._reads_large = True
            self._small_reads = 0
            transport.set_protocol(LargeReads(self._reader))

    def turn_back(self, nbytes: int) -> None:
        """Return to small mode after enough small reads. Called after each read into a buffer."""
        if nbytes > SMALL_READ_BYTES or not self.received.is_plain or self._budget.is_full:
            self._small_reads = 0
            return
        self._small_reads += 1
        transport = self._transport
        if self._small_reads >= MANY_SMALL_READS and transport is not None and not transport.is_closing():
            self._reads_large = False
            transport.set_protocol(self._reader.as_protocol())

    def reads_nothing_yet(self) -> None:
        """Leave the socket to another protocol: no switch to large mode until `reads_itself`."""
        self._reads_large = True

    def reads_itself(self) -> None:
        """Take the socket over in small mode, unless memory is spent."""
        self._reads_large = False
        if self._budget.is_full:
            self.read_large()

    # ---- turns -----------------------------------------------------------------------------------------

    def defer(self, rest: bytes | bytearray) -> None:
        """Keep `rest` for `next_turn`, and read nothing before."""
        self.rest = rest
        self.gate.pause(Pause.TURN)

    def call_soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    def next_turn(self) -> None:
        """Continue with what was deferred."""
        rest, self.rest = self.rest, b""
        self.gate.resume(Pause.TURN)
        if self._transport is not None:
            self._reader.take_rest(rest)


class Carrier:
    """Sends on what the reader of one side of a lent connection reads, as far as a lane allows (lending.py).

    For sockets with TLS. It stands above their transports: `data` is decrypted.
    """

    def __init__(self, lent: LentTo, to: Socket, go_on: Callable[[Left], None], *, of_client: bool) -> None:
        """`go_on`: called when the lane gives the connection back, and `data` with it."""
        assert to._transport is not None
        self._write = to._transport.write
        self._lent = lent
        self._look = lent.lane.carry
        self._handle = lent.handle
        self._of_client = of_client
        self._go_on = go_on

    def carry(self, data: bytes) -> None:
        passed = self._look(self._handle, self._of_client, data)
        if passed:
            self._write(passed)
        elif passed is None and (left := self._lent.take_back()) is not None:
            self._go_on(left)


class Reader(ABC):
    """A socket's protocol. An asyncio.Protocol by shape: without that base class, channels can be compiled."""

    def __init__(self, budget: BufferBudget, loop: asyncio.AbstractEventLoop) -> None:
        self.socket = Socket(self, budget, loop)
        self.carrier: Carrier | None = None
        """Takes all that is read while the connection is lent, with TLS."""

    def as_protocol(self) -> asyncio.Protocol:
        return cast(asyncio.Protocol, self)

    @abstractmethod
    def data_received(self, data: bytes) -> None:
        """Process a read in small mode; nothing is left over from earlier reads."""

    @abstractmethod
    def next_buffer(self) -> memoryview:
        """Return the buffer for the next read."""

    @abstractmethod
    def buffer_filled(self, nbytes: int) -> None:
        """Process the bytes read into `next_buffer`."""

    @property
    def is_between_frames(self) -> bool:
        """Return whether its socket may be lent: nothing waits, and no frame has begun. A login's never is."""
        return False

    def resume(self, left_bytes: int, begun: object) -> None:  # noqa: B027 - a login is not lent
        """Go on with a frame of which a lane has forwarded all but `left_bytes` (Left in lane/lanes.py)."""

    def defer(self, rest: bytes) -> None:  # noqa: B027 - a login is not lent
        """Take bytes that a lane has read, at the next turn."""

    @abstractmethod
    def take_rest(self, rest: bytes | bytearray) -> None:
        """Continue with the bytes deferred from the last turn."""

    def has_time(self) -> bool:
        """Return whether its account has time left in this turn (turns.py)."""
        return True

    def spend(self, work: int) -> None:  # noqa: B027 - a login is short
        """Count work for its account."""

    def await_turn(self, who: object, go_on: Callable[[], None]) -> None:
        """Call `go_on` when it is the turn of its account, and of `who` in it."""
        self.socket.call_soon(go_on)

    @abstractmethod
    def write(self, data: Data) -> None:
        """Count bytes and send them to the peer, if it is still connected."""

    def close_when_written(self) -> None:
        """Close the socket after unsent data has left. What was read and waits is dropped."""
        self.socket.close_when_written()

    @abstractmethod
    def eof_received(self) -> bool: ...

    @abstractmethod
    def connection_lost(self, exc: Exception | None) -> None: ...

    @abstractmethod
    def pause_writing(self) -> None: ...

    @abstractmethod
    def resume_writing(self) -> None: ...


class LargeReads(asyncio.BufferedProtocol):
    """Stands in for a reader at its transport in large mode."""

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
