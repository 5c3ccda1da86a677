"""TLS between a socket and its reader: a transport for the reader, a protocol for the socket.

The event loop's own TLS does not fit: there a connection begins after its handshake, outside all limits;
close waits for the peer's close; the size of a read is unlimited; and each connection keeps uncounted
buffers. Here a client's connection begins when it is accepted, a reader gets only as much as it has room for
(tls_inbox.py holds the rest), and close sends its alert and ends. Written data is encrypted as fast as the
socket accepts it, at most one turn's worth at once.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections import deque
from typing import Final, cast

from pidgate.gateway.proxy.buffers import BudgetShare, BufferBudget, Purpose
from pidgate.gateway.proxy.reading import SCARCE_READ_BYTES, LargeReads, Reader
from pidgate.gateway.proxy.tls_inbox import (
    ENCRYPTED_VIEW,
    MOST_READS_PER_TURN,
    READS_PER_DATALESS,
    SLICE_BYTES,
    TlsInbox,
)

TURN_BYTES: Final = 1024 * 1024
"""Most bytes encrypted in a turn: about a millisecond."""


class TlsTransport(ABC):
    """TLS of one socket.

    By shape an asyncio.Transport to its reader and an asyncio.BufferedProtocol to the socket.
    """

    def __init__(
        self,
        reader: Reader,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        budget: BufferBudget,
        share: BudgetShare,
        purpose: Purpose,
        server_hostname: str | None,
    ) -> None:
        """Set up TLS. `server_hostname`: the host name of the dialled server.

        None: this is the server's side.
        """
        self._reader = reader
        self._loop = loop
        self._budget = budget
        self._share = share
        self._purpose = purpose
        self._begins = server_hostname is not None
        """The client sends the first message."""
        self._ticket = b""
        """A server's ticket, which leaves with its first answer. A client of TLS 1.3 does not wait for it."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname is None, server_hostname
        )
        self._inbox = TlsInbox(self._tls, self._incoming)
        self._socket: asyncio.Transport | None = None
        self._is_secure = False
        """The handshake is over."""
        self._is_paused = False
        self._is_closing = False
        self._has_ended = False
        """The peer has ended its data, and the reader was notified."""
        self._reads_large = False
        self._unsent: deque[memoryview] = deque()
        """Written by the reader, but too much for one turn or for the socket."""
        self._unsent_bytes = 0
        self._socket_is_full = False
        self._is_full = False
        """The reader was told to pause writing."""
        self._error: Exception | None = None

    def as_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self)

    def as_transport(self) -> asyncio.Transport:
        return cast(asyncio.Transport, self)

    # ---- the handshake ---------------------------------------------------------------------------------

    @abstractmethod
    def began(self) -> None:
        """Called when the socket is open and the handshake begins."""

    @abstractmethod
    def secured(self) -> None:
        """Called after the handshake: the reader may read and write."""

    @abstractmethod
    def not_secured(self, error: Exception) -> None:
        """Called after a failed handshake; its alert has been sent."""

    def _shake_hands(self) -> None:
        """Go on with the handshake. A call for which the library has no bytes would cost an exception."""
        while not self._is_closing:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send()
                if not self._inbox.feed():
                    return
            except ssl.SSLError as error:
                self._send()
                self.not_secured(error)
                return
            else:
                if self._begins or self._tls.version() != "TLSv1.3":
                    self._send()
                else:
                    self._ticket = self._outgoing.read()
                self._is_secure = True
                self._inbox.handshake_over()
                if self._is_paused and self._socket is not None:
                    self._socket.pause_reading()
                self.secured()
                self._deliver()
                return

    # ---- the socket's protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self.began()
        if self._begins:
            self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        return ENCRYPTED_VIEW[:SCARCE_READ_BYTES] if self._budget.is_full else ENCRYPTED_VIEW

    def buffer_updated(self, nbytes: int) -> None:
        if self._takes_record(nbytes):
            return
        self._inbox.arrived(nbytes)
        if self._is_secure:
            self._deliver()
        elif self._inbox.feed():
            self._shake_hands()
        self._keep_rest()

    def _takes_record(self, nbytes: int) -> bool:
        """Deliver a read that is one record, on a connection where nothing waits: most reads. False: it is not."""
        inbox, reader = self._inbox, self._reader
        if (
            not inbox.is_record(nbytes)
            or self._reads_large
            or self._is_paused
            or self._is_closing
            or self._has_ended
            or not reader.has_time()
        ):
            return False
        try:
            data = inbox.read_record(nbytes)
        except ssl.SSLError as error:
            self._broken(error)
            return True
        if data:
            reader.spend(1)
            reader.data_received(data)
        else:
            reader.spend(READS_PER_DATALESS)
            self._deliver()
        return True

    def eof_received(self) -> bool:
        if not self._is_secure:
            self.not_secured(ConnectionResetError("it closed the connection before TLS was set up"))
            return False
        if not self._is_paused:
            self._deliver()
        return self._ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._socket = None
        self._inbox.clear()
        self._unsent.clear()
        self._unsent_bytes = 0
        self._share.hold(self._purpose, 0)
        self.lost(exc or self._error)

    @abstractmethod
    def lost(self, error: Exception | None) -> None:
        """Called when the socket is closed."""

    def pause_writing(self) -> None:
        self._socket_is_full = True
        self._weigh()

    def resume_writing(self) -> None:
        self._socket_is_full = False
        if self._unsent:
            self._loop.call_soon(self._send_more)
        else:
            self._weigh()

    # ---- reading ---------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Deliver arrived data within the reader's room and this turn."""
        inbox = self._inbox
        inbox.reads_left = MOST_READS_PER_TURN if self._reader.has_time() else 0
        while inbox.reads_left and not (self._is_paused or self._is_closing or self._has_ended):
            reader = self._reader  # a login may have replaced it
            try:
                if self._reads_large:
                    nbytes = inbox.read_into(reader.next_buffer())
                else:
                    data = inbox.read()
                    nbytes = len(data)
            except ssl.SSLError as error:
                self._broken(error)
                return
            if nbytes:
                if self._reads_large:
                    reader.buffer_filled(nbytes)
                else:
                    reader.data_received(data)
            if inbox.saw_end:
                if not self._ended():
                    self.close()
                return
            if not nbytes:
                break
        if inbox.reads_left:
            self._reader.spend(MOST_READS_PER_TURN - inbox.reads_left)
        elif self._socket is not None:
            self._reader.spend(MOST_READS_PER_TURN)
            self._socket.pause_reading()
            self._reader.await_turn(self, self._next_turn)
        # The library's own answers.
        if self._outgoing.pending:
            self._send()

    def _keep_rest(self) -> None:
        self._share.hold(self._purpose, self._inbox.keep_rest())

    def _next_turn(self) -> None:
        if self._socket is not None and not self._is_paused and not self._socket.is_closing():
            self._socket.resume_reading()
        self._go_on()

    def _go_on(self) -> None:
        if not self._is_paused and self._socket is not None:
            self._deliver()
            self._keep_rest()

    def _ended(self) -> bool:
        """Handle the end of the peer's data. Returns whether the reader still has something to send."""
        if self._has_ended:
            return not self._is_closing
        self._has_ended = True
        return self._reader.eof_received()

    def _broken(self, error: Exception) -> None:
        """Abort the connection: its bytes are not valid TLS."""
        self._error = error
        self._send()
        self.abort()

    # ---- the reader's transport ------------------------------------------------------------------------

    def write(self, data: bytes | bytearray) -> None:
        if self._is_closing or not self._is_secure:
            return
        if self._unsent:
            self._unsent.append(memoryview(data))
            self._unsent_bytes += len(data)
        elif len(data) <= SLICE_BYTES:
            try:
                self._tls.write(data)
            except ssl.SSLError as error:
                self._broken(error)
            else:
                self._send()
        else:
            self._unsent.append(memoryview(data))
            self._unsent_bytes = len(data)
            self._send_more()

    def _send_more(self) -> None:
        if self._socket is None:
            return
        self._encrypt()
        if self._unsent and not self._socket_is_full:
            self._loop.call_soon(self._send_more)
        if self._is_closing:
            if not self._unsent:
                self._say_goodbye()
        else:
            self._weigh()

    def _weigh(self) -> None:
        """Pause or resume the reader's writing when unsent data starts or stops to wait."""
        is_full = self._socket_is_full or bool(self._unsent)
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                self._reader.pause_writing()
            else:
                self._reader.resume_writing()

    def _encrypt(self) -> None:
        """Encrypt and send unsent data, as far as the socket and the turn allow."""
        turn_bytes = 0
        try:
            while self._unsent and turn_bytes < TURN_BYTES and not self._socket_is_full:
                view = self._unsent.popleft()
                if len(view) > SLICE_BYTES:
                    self._unsent.appendleft(view[SLICE_BYTES:])
                    view = view[:SLICE_BYTES]
                self._tls.write(view)
                self._unsent_bytes -= len(view)
                turn_bytes += len(view)
                self._send()
        except ssl.SSLError as error:
            self._broken(error)

    def _send(self) -> None:
        if self._socket is not None and self._outgoing.pending:
            data = self._outgoing.read()
            if self._ticket:
                data, self._ticket = self._ticket + data, b""
            self._socket.write(data)

    def close(self) -> None:
        """Close after all written data has been sent."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._unsent:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._is_secure:
            try:  # noqa: SIM105 - half of the cost
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the peer's own alert is not waited for
        self._send()
        if self._socket is not None:
            self._socket.close()

    def abort(self) -> None:
        self._is_closing = True
        if self._socket is not None:
            self._socket.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._socket is None or self._socket.is_closing()

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._socket is not None and self._is_secure:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._socket is not None and self._is_secure and not self._socket.is_closing():
            self._socket.resume_reading()
            if self._inbox.holds_some:
                self._loop.call_soon(self._go_on)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._reads_large = isinstance(protocol, LargeReads)
        if isinstance(protocol, Reader):
            self._reader = protocol

    def get_write_buffer_size(self) -> int:
        return 0 if self._socket is None else self._unsent_bytes + self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._socket is not None:
            self._socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: object = None) -> object:
        if name == "ssl_object":
            return self._tls
        return default if self._socket is None else self._socket.get_extra_info(name, default)
