"""The broker's socket of one connection: most answers stream through; some are buffered and rewritten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Final

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.proxy.apis.api import SIZE_PREFIX_BYTES, InFlightRequest
from pidgate.gateway.proxy.apis.produce import PRODUCE_API
from pidgate.gateway.proxy.apis.responses import COUNTED, ENDPOINTS_LAST, NO_BYTES, UNREAD, Response
from pidgate.gateway.proxy.buffers import Purpose
from pidgate.gateway.proxy.client_connection import ClientConnection
from pidgate.gateway.proxy.reading import (
    SCARCE_READ_BYTES,
    SMALL_READ_BYTES,
    Data,
    Pause,
    Reader,
    bytes_of,
    run_of,
)
from pidgate.gateway.proxy.receive_buffer import READ_BUFFER, READ_VIEW, first_large_bytes, large_frame_bytes
from pidgate.protocol.errors import FrameTooLarge, KafkaProtocolError, MalformedFrame
from pidgate.protocol.fetch import EndpointsWalker
from pidgate.protocol.produce_answers import has_head, is_plain_success
from pidgate.protocol.throttle import HEAD_BYTES
from pidgate.protocol.work import (
    ANSWER_BYTES_FOR_ONE,
    ARRIVED_BYTES_FOR_ONE,
    ARRIVED_FOR,
    JUDGED_PER_TURN,
    READ_FOR,
    REPEATED_FOR,
    STEPS_PER_TURN,
    WALKED_FOR,
    Walk,
)

_SIZE_AND_CORRELATION: Final = Struct(">ii")
NOTHING: Final = NO_BYTES, 0, 0
RESPONSE: Final = Response()
"""The answer that is read just now. Answers are read one after the other, by one thread."""
WHOLE_ANSWER_LIMIT_BYTES: Final = 128 * 1024 * 1024
"""Largest answer that is buffered whole. Metadata of ten thousand topics takes a few megabytes."""


class BrokerChannel(Reader):
    """One connection to a broker, on behalf of one client connection."""

    def __init__(self, connection: ClientConnection, header: bytes = b"") -> None:
        """Set up the channel. `header` is sent before everything else."""
        context = connection.context
        super().__init__(context.budget, context.loop)
        self._connection = connection
        self._session = connection.session
        self._in_flight = connection.session.context.in_flight
        self._age = connection.age
        self._received = self.socket.received
        self._now_ms = context.now_ms
        self._turns = context.shared.turns
        self._counters = context.counters
        self._budget = context.budget
        self._share = connection.share
        self._header = header
        self._is_full = False
        """The broker's socket accepts no more data."""
        self._passing_bytes = 0
        """Rest of an answer that streams through unread."""
        self._walker: EndpointsWalker | None = None
        self._walking_bytes = 0
        self._walk_in_turns: Walk | None = None
        """Work on an answer that takes more than one turn."""
        self._walked: tuple[bytearray, int, int] = NOTHING
        """That answer with its size prefix: buffer, start, end."""

    # ---- asyncio's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        opened = self.socket.opened(transport)
        self._connection.context.socket_opened(opened)
        if self._header:
            opened.write(self._header)
            self._header = b""
        self._connection.broker_connected(self)

    def data_received(self, data: bytes) -> None:
        if self.carrier is not None:
            self.carrier.carry(data)
            self.spend(ARRIVED_FOR)
            return
        nbytes = len(data)
        self._count(nbytes)
        if self._pass_plain_success(data):
            self.spend(ARRIVED_FOR + REPEATED_FOR)
            self._connection.answers_passed()
            return
        READ_VIEW[:nbytes] = data
        self._answers_arrived(READ_BUFFER, nbytes)
        if nbytes > SMALL_READ_BYTES:
            self.socket.read_large()

    def next_buffer(self) -> memoryview:
        is_scarce = self._budget.is_full or self._session.context.account.is_over
        if self._received.is_plain and not is_scarce:
            return READ_VIEW
        view = self._received.next_read()
        return view[:SCARCE_READ_BYTES] if is_scarce else view

    def buffer_filled(self, nbytes: int) -> None:
        if self.carrier is not None:
            self.carrier.carry(bytes(READ_VIEW[:nbytes]))
            self.spend(ARRIVED_FOR)
            self.socket.turn_back(nbytes)
            return
        self._count(nbytes)
        buf, end = READ_BUFFER, nbytes
        if not self._received.is_plain:
            arrived = self._received.received(nbytes)
            if arrived is None:
                return
            buf, end = arrived
        self._answers_arrived(buf, end)
        self.socket.turn_back(nbytes)

    def _count(self, nbytes: int) -> None:
        self._age.was_heard = True
        self._counters.bytes_from_brokers += nbytes
        in_flight = self._in_flight
        if in_flight.written_s:
            self._counters.broker_times.observe(monotonic_s() - in_flight.written_s)
            in_flight.written_s = 0.0

    def has_time(self) -> bool:
        return self._turns.has_time(self._session.context.account, self._now_ms())

    def spend(self, work: int) -> None:
        self._session.context.account.spent += work

    def await_turn(self, who: object, go_on: Callable[[], None]) -> None:
        self._connection.await_turn(who, go_on)

    def _leave_rest(self, rest: bytes | bytearray) -> None:
        """Keep answers until it is the account's turn, and read no more before."""
        if len(rest) > SCARCE_READ_BYTES:
            self.socket.read_large()
        self._share.hold(Purpose.REST_OF_ANSWERS, len(rest))
        self.socket.defer(rest)
        self.await_turn(self, self.socket.next_turn)

    def _answers_arrived(self, buf: bytearray, end: int) -> None:
        now_ms = self._now_ms()
        try:
            if not self._turns.has_time(self._session.context.account, now_ms):
                self._leave_rest(bytes_of(buf, 0, end))
                return
            kept_from = self._take_answers(buf, end, now_ms)
            if kept_from and self._share.total_bytes and self._share.held(Purpose.ANSWER):
                self._share.leave(self, Purpose.ANSWER)
                self._share.hold(Purpose.ANSWER, 0)
            if kept_from < end:
                self._keep(buf, kept_from, end)
            elif self._walk_in_turns is not None:
                _, start, stop = self._walked
                self._share.hold(Purpose.ANSWER, 2 * (stop - start))
            self._connection.answers_passed()
        except Exception as error:  # noqa: BLE001 - logged there
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, KafkaProtocolError):
            self._counters.upstream_failures["protocol"] += 1
            self._connection.close("upstream", f"an answer of the broker could not be read: {error}")
        else:
            self._connection.failed("answers")

    def _keep(self, buf: bytearray, start: int, end: int) -> None:
        """Buffer the beginning of an answer that must be whole before it is processed."""
        self.socket.read_large()
        # Without its head it is unknown whether the answer must be whole: it may stream through.
        large_bytes = large_frame_bytes(buf, start, end, HEAD_BYTES)
        if not large_bytes:
            self._received.keep(buf, start, end)
            return
        wanted_bytes = first_large_bytes(large_bytes, end - start)
        if self._share.may_hold(self, Purpose.ANSWER, large_bytes):
            self._share.hold(Purpose.ANSWER, large_bytes)
            self._received.keep_large(buf, start, end, large_bytes, wanted_bytes)
            return
        self._received.keep_large(buf, start, end, large_bytes, end - start)
        self.socket.gate.pause(Pause.BUDGET)

        def go_on() -> None:
            self._share.hold(Purpose.ANSWER, large_bytes)
            self._received.grant(wanted_bytes)
            self.socket.gate.resume(Pause.BUDGET)

        self._share.wait(self, Purpose.ANSWER, large_bytes, go_on)

    @property
    def is_between_frames(self) -> bool:
        return (
            self.socket.may_be_lent
            and not self._passing_bytes
            and not self._is_full
            and self._walker is None
            and self._walk_in_turns is None
        )

    def defer(self, rest: bytes) -> None:
        self._counters.bytes_from_brokers += len(rest)
        self._leave_rest(rest)

    def resume(self, left_bytes: int, begun: object) -> None:
        request = self._in_flight.requests()[0]
        assert isinstance(request, InFlightRequest)
        if request.api.passing is ENDPOINTS_LAST:
            assert isinstance(begun, tuple)
            version, translate = request.api_version, self._session.context.at.translate
            self._walker = EndpointsWalker(request.api_key, version, left_bytes, translate)
            self._walker.resume(begun)
            self._walking_bytes = left_bytes
        else:
            self._passing_bytes = left_bytes

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.socket.gate.recall()
        transport = self.socket.closed()
        if transport is not None:
            self._connection.context.socket_closed(transport)
        self._pass_waiting_answers()
        self._drop_answer()
        self._share.hold(Purpose.TO_BROKER, 0)
        self._connection.broker_lost(
            f"the broker's connection was lost: {exc}" if exc else "the broker closed", exc
        )

    def _pass_waiting_answers(self) -> None:
        """Pass on answers that wait for their turn: the broker has left, and their requests would be sent again."""
        while self.socket.rest and self._walk_in_turns is None:
            rest, self.socket.rest = bytearray(self.socket.rest), b""
            self._session.context.account.spent = 0
            self._answers_arrived(rest, len(rest))

    def close_when_written(self) -> None:
        """Close the socket as every reader does, and drop the buffered answer: its client is gone."""
        self._drop_answer()
        super().close_when_written()

    def _drop_answer(self) -> None:
        self._received.clear()
        self.socket.rest = b""
        self._walk_in_turns, self._walked = None, NOTHING
        self._share.hold(Purpose.REST_OF_ANSWERS, 0)
        self._share.leave(self, Purpose.ANSWER)
        self._share.hold(Purpose.ANSWER, 0)

    def pause_writing(self) -> None:
        self._is_full = True
        self._count_written()
        self._counters.reads_paused += 1
        self._connection.socket.gate.pause(Pause.PEER_BUSY)

    def resume_writing(self) -> None:
        self._is_full = False
        self._share.hold(Purpose.TO_BROKER, 0)
        self._connection.socket.gate.resume(Pause.PEER_BUSY)

    def _count_written(self) -> None:
        self._share.hold(Purpose.TO_BROKER, self.socket.unsent_bytes)

    # ---- the client's side -----------------------------------------------------------------------------

    def write(self, data: Data) -> None:
        if self.socket.write(data):
            self._counters.bytes_to_brokers += len(data)
            if self._is_full:
                self._count_written()
        in_flight = self._in_flight
        if not in_flight.written_s and in_flight.is_one_prompt:
            in_flight.written_s = monotonic_s()

    # ---- answers ---------------------------------------------------------------------------------------

    def _pass_plain_success(self, answer: bytes) -> bool:
        """Pass on one whole successful Produce answer, or do nothing at all. The hot path.

        The answer contains nothing to rewrite, and no answer of the gateway's own waits behind it.
        """
        if self._passing_bytes or self._walker is not None:
            return False
        head = self._in_flight.next_alone()
        if (
            head is None
            or head.api is not PRODUCE_API
            or len(answer) < _SIZE_AND_CORRELATION.size
            or not has_head(answer, len(answer) - SIZE_PREFIX_BYTES, head.correlation_id)
            or not is_plain_success(answer, SIZE_PREFIX_BYTES, len(answer), head.api_version)
        ):
            return False
        self._in_flight.remove_answered()
        self._connection.channel.write(answer)
        return True

    def _take_answers(self, buf: bytearray, end: int, now_ms: int) -> int:
        """Pass on the answers in buf[:end]; return the start of the part that waits for more bytes.

        Answers that need no change leave together in one write, whole or not.
        """
        context, response = self._session.context, RESPONSE
        account = context.account
        account.spent += ARRIVED_FOR + end // ARRIVED_BYTES_FOR_ONE
        run_start = pos = 0
        while pos < end and not (self.socket.rest or (pos and account.is_over)):
            if self._walker is not None:
                self._flush(buf, run_start, pos)
                run_start = pos = self._walk(self._walker, buf, pos, end)
                continue
            if self._passing_bytes:
                step = min(self._passing_bytes, end - pos)
                pos += step
                self._passing_bytes -= step
                if self._passing_bytes:
                    break
                run_start = self._done(buf, run_start, pos)
                continue
            if end - pos < _SIZE_AND_CORRELATION.size:
                break
            size, correlation_id = _SIZE_AND_CORRELATION.unpack_from(buf, pos)
            request = self._in_flight.expect(correlation_id)
            _check_size(size)
            passing = request.api.passing
            if passing is COUNTED:
                arrived = min(end, pos + SIZE_PREFIX_BYTES + size)
                if arrived - pos < min(HEAD_BYTES, SIZE_PREFIX_BYTES + size):
                    break
                response.buf, response.now_ms = buf, now_ms
                response.start, response.end = pos + SIZE_PREFIX_BYTES, arrived
                passing = request.api.begin_response(context, request, response)
                self._connection.act(context.take_actions())
            if passing is UNREAD:
                self._passing_bytes = SIZE_PREFIX_BYTES + size
                continue
            if passing is ENDPOINTS_LAST:
                self._walker = EndpointsWalker(
                    request.api_key, request.api_version, size, context.at.translate
                )
                self._walking_bytes = size
                pos += SIZE_PREFIX_BYTES  # the prefix joins the run: the walker keeps the length
                continue
            frame_end = pos + SIZE_PREFIX_BYTES + size
            if frame_end > end:
                _check_whole_size(size)
                break
            response.buf, response.now_ms = buf, now_ms
            response.start, response.end = pos + SIZE_PREFIX_BYTES, frame_end
            response.may_be_kept = buf is not READ_BUFFER
            account.spent += READ_FOR + size // ANSWER_BYTES_FOR_ONE
            instead = request.api.handle_response(context, request, response)
            if isinstance(instead, Walk):
                if self._takes_turns(instead, request, buf, pos, end):
                    break
                instead = instead.result
            if instead is not None:
                self._flush(buf, run_start, pos)
                self._connection.channel.write(instead)
                run_start = frame_end
            pos = frame_end
            run_start = self._done(buf, run_start, pos)
        self._flush(buf, run_start, pos)
        response.buf = NO_BYTES  # a large answer has a buffer of its own
        return self._end_turn(buf, pos, end)

    def _end_turn(self, buf: bytearray, pos: int, end: int) -> int:
        """Leave buf[pos:end] for another turn if this one is over. Returns where the incomplete answer starts."""
        if self.socket.rest or self._walk_in_turns is not None:
            return end
        if 0 < pos < end and self._session.context.account.is_over:
            self._leave_rest(bytes_of(buf, pos, end))
            return end
        return pos

    def _takes_turns(
        self, walk: Walk, request: InFlightRequest, buf: bytearray, start: int, end: int
    ) -> bool:
        """Return whether the answer at `start` needs more than this turn.

        If it lies in the shared buffer, the work restarts on a copy: other sockets use that buffer in the
        next turn.
        """
        if not walk.go_on():
            return False
        response = RESPONSE
        frame_end = response.end
        self._walk_in_turns, self._walked = walk, (buf, start, frame_end)
        rest = bytes(memoryview(buf)[frame_end:end])
        if buf is READ_BUFFER:
            response.buf, response.may_be_kept = bytearray(READ_VIEW[start:frame_end]), True
            response.start, response.end = SIZE_PREFIX_BYTES, len(response.buf)
            again = request.api.handle_response(self._session.context, request, response)
            assert isinstance(again, Walk)
            self._walk_in_turns, self._walked = again, (response.buf, 0, len(response.buf))
        response.buf = NO_BYTES
        self._leave_rest(rest)
        return True

    def take_rest(self, rest: bytes | bytearray) -> None:
        self._share.hold(Purpose.REST_OF_ANSWERS, 0)
        if self._connection.socket.is_lost:
            return
        walk = self._walk_in_turns
        try:
            if walk is not None:
                self.spend(JUDGED_PER_TURN)
                if walk.go_on():
                    self._leave_rest(rest)
                    return
                if walk.result is None:
                    self._flush(*self._walked)
                else:
                    self._connection.channel.write(walk.result)
                self._walk_in_turns, self._walked = None, NOTHING
                self._share.hold(Purpose.ANSWER, 0)
                self._done(NO_BYTES, 0, 0)
                if rest:
                    self._leave_rest(rest)
                self._connection.answers_passed()
                return
        except Exception as error:  # noqa: BLE001 - logged there
            self._failed(error)
            return
        self._answers_arrived(rest if isinstance(rest, bytearray) else bytearray(rest), len(rest))

    def _walk(self, walker: EndpointsWalker, buf: bytearray, pos: int, end: int) -> int:
        stop = min(end, pos + self._walking_bytes)
        view = memoryview(buf)
        parts = walker.feed_chunk(view[pos:stop], STEPS_PER_TURN)
        stop -= walker.unfed_bytes
        self._walking_bytes -= stop - pos
        for part in parts:
            self._connection.channel.write(part)
        if walker.unfed_bytes:
            self.spend(WALKED_FOR)
            self._leave_rest(bytes(view[stop:end]))
        if not self._walking_bytes:
            self._walker = None
            self._done(buf, stop, stop)
        return stop

    def _done(self, buf: bytearray, run_start: int, pos: int) -> int:
        """Complete the answer that ends at `pos`. Returns the start of the unsent run."""
        self._session.context.account.spent += REPEATED_FOR
        actions = self._session.answer_passed()
        if actions:
            self._flush(buf, run_start, pos)
            self._connection.act(actions)
            return pos
        return run_start

    def _flush(self, buf: bytearray, start: int, end: int) -> None:
        if start != end:
            self._connection.channel.write(run_of(buf, start, end))


def _check_size(answer_bytes: int) -> None:
    if answer_bytes < _SIZE_AND_CORRELATION.size - SIZE_PREFIX_BYTES:
        raise MalformedFrame(f"an answer of {answer_bytes} bytes")


def _check_whole_size(answer_bytes: int) -> None:
    if answer_bytes > WHOLE_ANSWER_LIMIT_BYTES:
        raise FrameTooLarge(f"an answer of {answer_bytes} bytes that has to be read whole")
