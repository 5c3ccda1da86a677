"""The ends of a simulated connection: transports as uvloop's, over a kernel's buffers and a wire that delays.

Each end has what a process has (its transport, which dies with it) and what its kernel has for it: bytes that have
arrived and were not read, room for bytes on their way. Order on a wire is TCP's. Who closes with bytes unread resets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from tests.simulator.link import Link, Mark
from tests.simulator.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_READ_BYTES: Final = 256 * 1024
"""In one call of data_received: uvloop's buffer."""
MOST_READS_A_TURN: Final = 32
"""libuv's, of one socket."""
DEFAULT_HIGH_BYTES: Final = 64 * 1024


_PRODUCE: Final = b"\0\0"
"""Behind the size prefix of a request."""

_KERNEL: Final = Context()
"""Of what happens whether or not a process lives."""


class End(asyncio.Transport):
    """One end: a transport for its process; the way in belongs to it, the way out is its peer's way in."""

    peer: End

    def __init__(self, link: Link, process: Process, peername: Any, sockname: Any) -> None:
        super().__init__()
        self.link = link
        self.process = process
        self._loop = link.loop
        self._names = {"peername": peername, "sockname": sockname}
        self._protocol: Any = None
        self._get_buffer: Callable[[int], Any] | None = None
        # The process's part.
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._high, self._low = DEFAULT_HIGH_BYTES, DEFAULT_HIGH_BYTES // 4
        self._is_writing_paused = False
        self._wrote_eof = self._has_sent_fin = False
        self._is_connected = False
        self._is_reading = False
        self._is_closing = False
        self._is_losing = False
        """connection_lost is called next."""
        self.is_gone = False
        """The socket is closed."""
        # The kernel's part: what came in.
        self._coming: deque[tuple[float, bytes | Mark]] = deque()
        self._is_travelling = self.is_held = False
        self._arrived: deque[bytes] = deque()
        self._taken_bytes = 0
        """Of its room: on its way to here, or here and not read."""
        self._has_fin = self._has_rst = False
        # A lane's part.
        self.descriptor = -1
        """The process's number for the socket, once it is connected."""
        self.on_ready: Callable[[], None] | None = None
        """Called when it may be read, or takes more: a lane has the socket, and nobody else may use it."""
        self.noted_bytes = 0
        """Bytes of the next write that are in `written` already."""

    def __repr__(self) -> str:
        return f"<End {self.process.name} of {self.link.name}>"

    # ---- the wire --------------------------------------------------------------------------------------

    def arrives(self, what: bytes | Mark) -> None:
        """Have bytes, or a mark, arrive here: after a delay, behind all that is on its way."""
        at_s = self._loop.time() + self.link.delay_s()
        coming = self._coming
        if coming and coming[-1][0] > at_s:
            at_s = coming[-1][0]
        coming.append((at_s, what))
        if not self._is_travelling:
            self._is_travelling = True
            self._loop.call_at(at_s, self._arrive, context=_KERNEL)

    def room_bytes(self) -> int:
        return self.link.weather.capacity_bytes - self._taken_bytes

    def send(self, data: bytes) -> None:
        """Put bytes on the wire to here, in one piece or several."""
        link = self.link
        if self is link.server and link.is_broken_off:
            return
        random = link.random.random
        if self is link.server and link.breaks_off is not None and data[4:6] == _PRODUCE:
            link.is_broken_off = True
            data = data[: 1 + int(random() * (len(data) - 1))]
        self._taken_bytes += len(data)
        while len(data) > 1 and random() < link.weather.recut:
            at = 1 + int(random() * (len(data) - 1))
            self.arrives(data[:at])
            data = data[at:]
        self.arrives(data)
        if self is link.server and link.is_broken_off and link.breaks_off is not None:
            self.arrives(link.breaks_off)
            if link.breaks_off is Mark.RST:
                self.peer.arrives(Mark.RST)

    def lose_some_on_its_way(self) -> None:
        """Drop the last of what is on its way to here."""
        self._lose_last(int(self.link.random.random() * (len(self._coming) + 1)))

    def lose_held(self) -> None:
        """Drop what is held, as the kernel of a process does that has not read it when a reset comes."""
        self._lose_last(len(self._coming))
        self.is_held = False

    def _lose_last(self, count: int) -> None:
        for _ in range(count):
            _, lost = self._coming.pop()
            if isinstance(lost, bytes):
                self._taken_bytes -= len(lost)

    def travel_on(self) -> None:
        """Arm again what was held."""
        if self._coming and not self._is_travelling:
            self._is_travelling = True
            self._loop.call_later(self.link.delay_s(), self._arrive, context=_KERNEL)

    def _arrive(self) -> None:
        self._is_travelling = False
        if self.is_held:
            return
        coming, now_s = self._coming, self._loop.time()
        while coming and coming[0][0] <= now_s:
            self._arrives_now(coming.popleft()[1])
        if coming:
            self._is_travelling = True
            self._loop.call_at(coming[0][0], self._arrive, context=_KERNEL)
        self._read_if_reading()

    def let_one_arrive(self) -> bool:
        """Have the first of what is held arrive. Returns False where nothing has come that far."""
        coming = self._coming
        if not coming or coming[0][0] > self._loop.time():
            return False
        self._arrives_now(coming.popleft()[1])
        self._read_if_reading()
        return True

    # ---- a lane, which has the socket, and not its transport -------------------------------------------

    def fileno(self) -> int:
        return self.descriptor

    @property
    def is_readable(self) -> bool:
        return bool(self._arrived) or self._has_fin or self._has_rst

    @property
    def is_reset(self) -> bool:
        return self._has_rst

    @property
    def arrived_bytes(self) -> int:
        return sum(map(len, self._arrived))

    def receive(self, most: int) -> bytes | None:
        """Read as recv does: b"" at the end, None where nothing has arrived. Raises OSError."""
        if self._arrived:
            return self._next_bytes(most)
        if self._has_rst:
            raise self._reset_error()
        return b"" if self._has_fin else None

    def note_written(self, data: bytes) -> None:
        """Keep what a lane has decided to forward, whether or not there is room for it."""
        if self.link.written is not None:
            self.link.written.append((self._loop.time(), self.link.name, self.process.name, data))

    def send_now(self, data: bytes) -> int:
        """Send as send does without waiting; return how many bytes were taken. Raises OSError."""
        if self._has_rst:
            raise self._reset_error()
        taken = data[: max(0, self.peer.room_bytes())]
        if taken:
            self.peer.send(taken)
        return len(taken)

    def _ready(self) -> None:
        if self.on_ready is not None:
            self.on_ready()

    def _ensure_not_lent(self) -> None:
        if self.on_ready is not None:
            raise RuntimeError(f"{self!r} is used while a lane has it")

    def _arrives_now(self, what: bytes | Mark) -> None:
        if self.link.trace is not None:
            self.link.trace.append((self._loop.time(), self.link.name, self.process.name, what))
        self._take(what)

    def _read_if_reading(self) -> None:
        self._ready()
        if self._is_reading:
            if self.process.is_running:
                self.process.context.run(self._read)
            else:
                self._loop.call_soon(self._read, context=self.process.context)

    def _take(self, what: bytes | Mark) -> None:
        if self.is_gone:
            if isinstance(what, bytes):
                self._taken_bytes -= len(what)
                self.peer.arrives(Mark.RST)
        elif isinstance(what, bytes):
            # What comes behind a reset or the end is taken by nobody: before it something may be missing.
            if self._has_rst or self._has_fin:
                self._taken_bytes -= len(what)
            else:
                self._arrived.append(what)
        elif what is Mark.FIN:
            self._has_fin = True
        else:
            self._has_rst = True
            if self._unsent:
                self._loop.call_soon(self._flush, context=self.process.context)

    def close_socket(self, *, resets: bool = False) -> None:
        """Close it, as its process or, when that has died, its kernel does; a reset where bytes are unread."""
        if self.is_gone:
            return
        if self.process.is_alive:
            self._ensure_not_lent()
        self.on_ready = None
        self.is_gone = self._is_closing = True
        self._is_reading = False
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._has_rst:
            return
        if self._arrived or resets:
            self._arrived.clear()
            self.peer.lose_some_on_its_way()
            self.peer.arrives(Mark.RST)
        else:
            self._send_fin()
            if self.peer._unsent:  # it is sent in the end, and nobody is here to take it
                self.peer.arrives(Mark.RST)

    def _reset_error(self) -> OSError:
        # Linux, tcp_reset: EPIPE where the peer had closed before.
        if self._has_fin:
            return BrokenPipeError(32, "Broken pipe")
        return ConnectionResetError(104, "Connection reset by peer")

    def _send_fin(self) -> None:
        if not self._has_sent_fin:
            self._has_sent_fin = True
            self.peer.arrives(Mark.FIN)

    # ---- reading ---------------------------------------------------------------------------------------

    def open(self, protocol: Any) -> None:
        """Begin: connection_made is called next. Only as the process whose end it is."""
        self.set_protocol(protocol)
        self._loop.call_soon(self._made, context=self.process.context)

    def _made(self) -> None:
        if self.is_gone:
            return
        self._is_connected = True
        self._protocol.connection_made(self)
        if not self._is_closing:
            self._start_reading()

    def _start_reading(self) -> None:
        self._ensure_not_lent()
        self._is_reading = True
        if self._arrived or self._has_fin or self._has_rst:
            self._loop.call_soon(self._read, context=self.process.context)

    def _read(self) -> None:
        """Hand on what has arrived, as libuv does: the protocol may stop it, or be another one, at each step."""
        try:
            for _ in range(MOST_READS_A_TURN):
                if not self._is_reading:
                    return
                if self._arrived:
                    if self._get_buffer is None:
                        self._protocol.data_received(self._next_bytes(MOST_READ_BYTES))
                    else:
                        self._fill(self._get_buffer(MOST_READ_BYTES // 4))
                elif self._has_rst:
                    self._force_close(self._reset_error())
                elif self._has_fin:
                    self._is_reading = False  # whoever reads on sees the end once more
                    if not self._protocol.eof_received():
                        self.close()
                else:
                    return
        except Exception as error:  # noqa: BLE001 - as uvloop: the connection ends, the loop hears of it
            self._fatal(error)
            return
        if self._is_reading:
            self._loop.call_soon(self._read, context=self.process.context)

    def _fill(self, buffer: Any) -> None:
        view = memoryview(buffer).cast("B")
        if not len(view):
            raise RuntimeError("unhandled error (or an empty buffer) in get_buffer()")
        data = self._next_bytes(len(view))
        view[: len(data)] = data
        self._protocol.buffer_updated(len(data))

    def _next_bytes(self, most: int) -> bytes:
        arrived = self._arrived
        data = arrived.popleft()
        if arrived and len(data) < most:
            pieces, total = [data], len(data)
            while arrived and total < most:
                pieces.append(arrived.popleft())
                total += len(pieces[-1])
            data = b"".join(pieces)
        if len(data) > most:
            arrived.appendleft(data[most:])
            data = data[:most]
        self._taken_bytes -= len(data)
        if self.peer._unsent or self.peer.on_ready is not None:
            self._loop.call_later(self.link.delay_s(), self.peer._has_room, context=_KERNEL)
        return data

    def _has_room(self) -> None:
        self._ready()
        if not self.is_gone and self._unsent:
            self._loop.call_soon(self._flush, context=self.process.context)

    # ---- writing ---------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._ensure_alive()
        self._ensure_not_lent()
        if self._wrote_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._is_losing:
            return
        whole = bytes(data)
        self.note_written(whole[self.noted_bytes :])
        self.noted_bytes = max(0, self.noted_bytes - len(whole))
        if self.link.is_read_on_demand and self is self.link.client and whole[4:6] == _PRODUCE:
            self.is_held = True
        if self._has_rst:
            self._force_close(self._reset_error())
        elif not self._unsent and len(whole) <= self.peer.room_bytes():
            self.peer.send(whole)
        else:
            self._unsent.append(whole)
            self._unsent_bytes += len(whole)
            self._flush()
            self._maybe_pause()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _flush(self) -> None:
        if self.is_gone or self._is_losing:
            return
        if self._has_rst:
            self._force_close(self._reset_error())
            return
        unsent, room = self._unsent, self.peer.room_bytes()
        while unsent and room > 0:
            data = unsent.popleft()
            if len(data) > room:
                unsent.appendleft(data[room:])
                data = data[:room]
            room -= len(data)
            self._unsent_bytes -= len(data)
            self.peer.send(data)
        if self._is_writing_paused and self._unsent_bytes <= self._low:
            self._is_writing_paused = False
            self._protocol.resume_writing()
        if not unsent:
            if self._is_closing:
                self._lose(None)
            elif self._wrote_eof:
                self._send_fin()

    def _maybe_pause(self) -> None:
        if self._unsent_bytes > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        self._ensure_alive()
        if not self._wrote_eof:
            self._wrote_eof = True
            if not self._unsent:
                self._send_fin()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._ensure_alive()
        if high is None:
            high = DEFAULT_HIGH_BYTES if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low
        self._maybe_pause()

    # ---- ending ----------------------------------------------------------------------------------------

    def _ensure_alive(self) -> None:
        if self.is_gone:
            raise RuntimeError(f"unable to perform operation on {self!r}; the handler is closed")

    def close(self) -> None:
        if self._is_closing:
            return
        self._ensure_not_lent()
        self._is_closing = True
        self._is_reading = False
        if not self._unsent:
            self._lose(None)

    def abort(self) -> None:
        self._force_close(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def _fatal(self, error: Exception) -> None:
        self._force_close(error)
        if not isinstance(error, OSError):
            self._loop.call_exception_handler(
                {"message": f"Fatal error on transport {self!r}", "exception": error}
            )

    def _force_close(self, error: Exception | None) -> None:
        if self._is_losing or self.is_gone:
            return
        self._ensure_not_lent()
        self._is_closing = True
        self._is_reading = False
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_losing:
            self._is_losing = True
            self._loop.call_soon(self._lost, error, context=self.process.context)

    def _lost(self, error: Exception | None) -> None:
        if self.is_gone:
            return
        try:
            if self._is_connected:
                self._protocol.connection_lost(error)
        finally:
            self.close_socket()
            self._protocol = self._get_buffer = None

    # ---- what else transports have ---------------------------------------------------------------------

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        if not self._is_closing:
            self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closing:
            self._ensure_alive()
            self._start_reading()

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        is_plain = isinstance(protocol, asyncio.Protocol) or not hasattr(protocol, "get_buffer")
        self._get_buffer = None if is_plain else protocol.get_buffer

    def get_protocol(self) -> Any:
        return self._protocol

    def setsockopt(self, *_: object) -> None:
        """Take keepalive, which changes nothing here: whoever vanishes is closed by the idle limit."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket" and self.descriptor >= 0:
            return self
        return self._names.get(name, default)
