"""The client's socket of one connection: reads requests, passes them to the session, writes answers.

Reading pauses while any reason in `reading.Pause` holds: the broker is being dialled or is slow, the client
does not read its answers, the read-ahead behind a mute is full, the memory budget is spent, or the gateway
drains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from sys import intern
from typing import Final

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.proxy.actions import PASS_FRAME
from pidgate.gateway.proxy.apis.api import SIZE_PREFIX_BYTES
from pidgate.gateway.proxy.buffers import Purpose
from pidgate.gateway.proxy.client_connection import ClientConnection, Dial
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.frame_reservation import REQUEST_HEAD_BYTES, is_of_login
from pidgate.gateway.proxy.lending import Lending
from pidgate.gateway.proxy.reading import (
    SCARCE_READ_BYTES,
    SMALL_READ_BYTES,
    Data,
    Pause,
    Reader,
    bytes_of,
    run_of,
)
from pidgate.gateway.proxy.receive_buffer import READ_BUFFER, READ_VIEW, frame_size, too_large
from pidgate.protocol.repeated_produce import BEGINNING_BYTES
from pidgate.protocol.work import ARRIVED_BYTES_FOR_ONE, ARRIVED_FOR

AFTER_REST_BYTES: Final = 16 * 1024
"""Most bytes of a read of an account whose time is over, or behind one that had to wait: they would wait here."""

NO_ROOM: Final = "the memory for connections before login is full: limits.buffered_total"


class ClientChannel(Reader):
    """The client's socket. Its `connection` dials the broker on the first request for one."""

    def __init__(self, context: ConnectionContext, dial: Dial) -> None:
        super().__init__(context.budget, context.loop)
        self.connection = ClientConnection(context, dial, self)
        self._session = self.connection.session
        self._reservation = self.connection.reservation
        self._broker = self.connection.broker
        self._read_ahead = self.connection.read_ahead
        self._received = self.socket.received
        self._age = self.connection.age
        self._now_ms = context.now_ms
        self._turns = context.shared.turns
        self._counters = context.counters
        self._budget = context.budget
        self._frame_limit_bytes = context.frame_limit_bytes
        self._login_limit_bytes = context.frame_before_auth_bytes
        self._kept_frame_bytes = context.kept_frame_bytes
        self._lending: Lending | None = None
        """None: it was never lent. Most connections never are."""
        self._leaves_rests = False
        """Its last read had to wait for a turn. A plain attribute, because every read checks it."""

    # ---- asyncio's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = self.connection
        connection.context.socket_opened(self.socket.opened(transport))
        peer = transport.get_extra_info("peername")
        connection.client.address = intern(peer[0]) if peer else ""
        connection.context.opened(connection)

    def data_received(self, data: bytes) -> None:
        if self.carrier is not None:
            self.carrier.carry(data)
            return
        nbytes = len(data)
        self._count(nbytes)
        self._requests_arrived(data, nbytes)
        if nbytes > SMALL_READ_BYTES:
            self.socket.read_large()

    def next_buffer(self) -> memoryview:
        is_scarce = self._budget.is_full or self._read_ahead.is_scarce
        waits = self._leaves_rests or self._session.context.account.is_over
        if self._received.is_plain and not is_scarce:
            return READ_VIEW[:AFTER_REST_BYTES] if waits else READ_VIEW
        view = self._received.next_read()
        if is_scarce and not self._reservation.is_held:
            return view[:SCARCE_READ_BYTES]
        return view[:AFTER_REST_BYTES] if waits else view

    def buffer_filled(self, nbytes: int) -> None:
        if self.carrier is not None:
            self.carrier.carry(bytes(READ_VIEW[:nbytes]))
            self.socket.turn_back(nbytes)
            return
        self._count(nbytes)
        if self._received.is_plain:
            buf, end = READ_BUFFER, nbytes
        else:
            arrived = self._received.received(nbytes)
            if arrived is None:
                self._reservation.grow()
                return
            buf, end = arrived
        if buf is READ_BUFFER and end <= SMALL_READ_BYTES:
            self._requests_arrived(bytes(READ_VIEW[:end]), end)
        else:
            self._requests_arrived(buf, end)
        self._leaves_rests = bool(self.socket.rest)
        self.socket.turn_back(nbytes)

    def _count(self, nbytes: int) -> None:
        self._age.was_heard = True
        self._counters.bytes_from_clients += nbytes
        self._session.context.account.bytes_in += nbytes
        recorder = self.connection.recorder
        if recorder is not None:
            recorder.bytes_in += nbytes

    def eof_received(self) -> bool:
        self.socket.gate.recall()
        return self.connection.client_ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self.socket.gate.recall()
        connection = self.connection
        transport = self.socket.closed()
        if transport is not None:
            connection.context.socket_closed(transport)
        self._received.clear()
        connection.share.hold(Purpose.TO_CLIENT, 0)
        connection.share.hold(Purpose.REST, 0)
        connection.client_lost(exc)

    def pause_writing(self) -> None:
        """Stop reading answers and requests: the client does not read its answers."""
        self.socket.gate.pause(Pause.NOT_READING)
        self.connection.unread_since_ms = self._now_ms()
        self.connection.share.hold(Purpose.TO_CLIENT, self.socket.unsent_bytes)
        self._broker.client_reads(False)

    def resume_writing(self) -> None:
        self.connection.share.hold(Purpose.TO_CLIENT, 0)
        self.socket.gate.resume(Pause.NOT_READING)
        self._broker.client_reads(True)

    # ---- turns -----------------------------------------------------------------------------------------

    def has_time(self) -> bool:
        return self._turns.has_time(self._session.context.account, self._now_ms())

    def spend(self, work: int) -> None:
        self._session.context.account.spent += work

    def await_turn(self, who: object, go_on: Callable[[], None]) -> None:
        self.connection.await_turn(who, go_on)

    # ---- a proxy's header ------------------------------------------------------------------------------

    def awaits_origin(self) -> None:
        """Count for no address and read nothing until a proxy's header has named the address."""
        self.connection.address_is_known = False
        self.socket.reads_nothing_yet()

    # ---- answers ---------------------------------------------------------------------------------------

    def write(self, data: Data) -> None:
        """Send bytes to the client. Callers keep the order of its requests."""
        if self.socket.write(data):
            self._counters.bytes_to_clients += len(data)
            self._session.context.account.bytes_out += len(data)
            if self.socket.gate.reasons & Pause.NOT_READING:
                self.connection.share.hold(Purpose.TO_CLIENT, self.socket.unsent_bytes)
            recorder = self.connection.recorder
            if recorder is not None:
                recorder.bytes_out += len(data)

    # ---- requests --------------------------------------------------------------------------------------

    def _requests_arrived(self, buf: bytes | bytearray, end: int) -> None:
        connection, reservation, now_ms = self.connection, self._reservation, self._now_ms()
        try:
            if not self._turns.has_time(self._session.context.account, now_ms):
                self._leave_rest(buf, 0, end)
                return
            began_s = monotonic_s()
            kept_from = self._take_requests(buf, end, now_ms)
            if connection.reads_no_more:
                return
            if kept_from:
                self._counters.forward_times.observe(monotonic_s() - began_s)
            if kept_from and reservation.is_under_way and not reservation.left_bytes:
                reservation.drop()
            if kept_from < end:
                self.socket.read_large()
                if not reservation.keep(buf, kept_from, end):
                    connection.close_for_frame(NO_ROOM)
            elif self._session.context.streak >= self._session.context.lend_after:
                if self._lending is None:
                    self._lending = Lending(self, connection)
                self._lending.lend(now_ms)
        except Exception:  # noqa: BLE001 - logged there
            connection.failed("requests")

    def _take_requests(self, buf: bytes | bytearray, end: int, now_ms: int) -> int:
        """Process every whole frame in buf[:end]; return the start of the incomplete rest.

        Frames that need no change are forwarded together in one write.
        """
        session, connection = self._session, self.connection
        context = session.context
        account = context.account
        account.spent += ARRIVED_FOR + end // ARRIVED_BYTES_FOR_ONE
        is_missing = context.login.is_missing
        frame_limit_bytes = self._login_limit_bytes if is_missing else self._frame_limit_bytes
        run_start = pos = 0
        if self._reservation.left_bytes:
            pos = self._pass_on(end, now_ms)
        while end - pos >= SIZE_PREFIX_BYTES:
            size = frame_size(buf, pos)
            frame_end = pos + SIZE_PREFIX_BYTES + size
            if not 0 <= size <= frame_limit_bytes or (
                size > self._login_limit_bytes
                and frame_end > end >= pos + REQUEST_HEAD_BYTES
                and is_of_login(buf, pos)
            ):
                self._forward(buf, run_start, pos)
                self._end_too_large(size)
                return end
            if frame_end > end:
                if size > self._kept_frame_bytes and self._may_pass_on(buf, pos, end, size, now_ms):
                    pos = end
                break
            actions = session.receive(buf, pos + SIZE_PREFIX_BYTES, frame_end, now_ms)
            if actions:
                self._forward(buf, run_start, frame_end if actions[0] is PASS_FRAME else pos)
                run_start = frame_end
                connection.act(actions)
                if connection.reads_no_more:
                    return end
            pos = frame_end
            if account.is_over:
                if pos < end:
                    self._leave_rest(buf, pos, end)
                break
        self._forward(buf, run_start, pos)
        return end if self.socket.rest else pos

    def _end_too_large(self, size: int) -> None:
        is_missing = self._session.context.login.is_missing
        of_login = is_missing or 0 <= size <= self._frame_limit_bytes
        limit_bytes = self._login_limit_bytes if of_login else self._frame_limit_bytes
        self._counters.frames_malformed += 1
        self._counters.frames_too_large += 1
        self.connection.close("protocol", str(too_large(size, limit_bytes, of_login=of_login)))

    def _leave_rest(self, buf: bytes | bytearray, pos: int, end: int) -> None:
        """Keep requests until it is the account's turn, and read little after them: it would only wait here."""
        if end > AFTER_REST_BYTES:
            self._leaves_rests = True
            self.socket.read_large()
        self.connection.share.hold(Purpose.REST, end - pos)
        self.socket.defer(bytes_of(buf, pos, end))
        self.await_turn(self, self.socket.next_turn)

    @property
    def is_between_frames(self) -> bool:
        return self.socket.may_be_lent and not self._reservation.is_under_way

    def defer(self, rest: bytes) -> None:
        self._count(len(rest))
        self._leave_rest(rest, 0, len(rest))

    def resume(self, left_bytes: int, begun: object) -> None:
        assert isinstance(begun, tuple)
        correlation_id, request_bytes, records, topic, partition = begun
        self._session.context.repeated.resume(correlation_id, topic, partition, records)
        self._session.count_streamed(request_bytes - left_bytes, self._now_ms())
        self._reservation.resume(SIZE_PREFIX_BYTES + request_bytes, left_bytes)

    def _may_pass_on(self, buf: bytes | bytearray, pos: int, end: int, size: int, now_ms: int) -> bool:
        """Start forwarding the request at `pos` while it arrives, or return False."""
        start = pos + SIZE_PREFIX_BYTES
        with memoryview(buf) as view:
            beginning = bytes(view[start : min(end, start + BEGINNING_BYTES)])
        may_pass_on = (
            self._broker.channel is not None
            and self._session.may_stream(beginning, size, now_ms)
            and self._reservation.may_pass_on(SIZE_PREFIX_BYTES + size, end - pos)
        )
        if may_pass_on:
            self._session.count_streamed(end - start, now_ms)
        return may_pass_on

    def _pass_on(self, end: int, now_ms: int) -> int:
        """Return how many of the arrived bytes belong to the request being forwarded."""
        arrived_bytes = min(end, self._reservation.left_bytes)
        self._session.count_streamed(arrived_bytes, now_ms)
        frame_bytes = self._reservation.passed_on(arrived_bytes)
        if frame_bytes:
            self.connection.act(self._session.has_streamed(frame_bytes - SIZE_PREFIX_BYTES, now_ms))
        return arrived_bytes

    def take_rest(self, rest: bytes | bytearray) -> None:
        if self.connection.reads_no_more:
            self.connection.share.hold(Purpose.REST, 0)
        elif self.socket.gate.reasons & Pause.MANY_IN_FLIGHT:
            self.socket.defer(rest)
            self.socket.is_parked = True
        else:
            self.connection.share.hold(Purpose.REST, 0)
            self._requests_arrived(rest, len(rest))

    def _forward(self, buf: bytes | bytearray, start: int, end: int) -> None:
        if start != end:
            self._broker.send(run_of(buf, start, end))
