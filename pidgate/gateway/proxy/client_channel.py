"""The client's socket of one connection: reads requests, passes them to the conversation, forwards its
output.

It owns the connection's timers and its back-pressure. Reading pauses while any reason in `reading.Pause`
holds: the broker is being dialled or is slow, the client does not read its answers, the read-ahead behind a
mute is full, the memory budget is spent, or the gateway drains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from pidgate.gateway.proxy.apis.api import CLOSE, FORWARD, INSTEAD, SIZE_PREFIX_BYTES
from pidgate.gateway.proxy.apis.client_quotas import alteration_answered
from pidgate.gateway.proxy.apis.passing_produce import has_passed
from pidgate.gateway.proxy.broker_side import BrokerSide, in_few_writes
from pidgate.gateway.proxy.buffers import Purpose
from pidgate.gateway.proxy.client_connection import CONNECTED
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.connection_state import LifeEvent
from pidgate.gateway.proxy.frame_reservation import REQUEST_HEAD_BYTES, is_of_login
from pidgate.gateway.proxy.reading import SCARCE_READ_BYTES, SMALL_READ_BYTES, Data, Pause, run_of
from pidgate.gateway.proxy.receive_buffer import READ_BUFFER, READ_VIEW, frame_size, too_large
from pidgate.gateway.quotas.administration import Kept
from pidgate.gateway.quotas.kafka_api import QuotaExchange
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.repeated_produce import BEGINNING_BYTES
from pidgate.protocol.work import JUDGED_PER_TURN, MOST_FRAMES_PER_TURN
from pidgate.quota.changes import Change

Dial = Callable[["ClientChannel"], "asyncio.Task[None] | None"]
"""See BrokerSide.dial."""


CHANGE_FAILED: Final = "the gateway could not change its quotas; its log says why"


class ClientChannel(BrokerSide):
    """The client's side of a connection. `dial` connects the broker's side on the first request for a broker."""

    def __init__(self, context: ConnectionContext, dial: Dial) -> None:
        super().__init__(context)
        self._dial = dial
        self._frame_limit_bytes = context.frame_limit_bytes
        self._login_limit_bytes = context.frame_before_auth_bytes
        self._kept_frame_bytes = context.kept_frame_bytes
        self._mute_timer: asyncio.TimerHandle | None = None
        self._administered: list[Change] = []
        """The latest changes of quotas that were sent, as the same list object."""

    def dial(self) -> asyncio.Task[None] | None:
        return self._dial(self)

    def stand_for(self, context: ConnectionContext, dial: Dial) -> None:
        """Move to another node of the same listener, before the first request."""
        self.context, self._dial = context, dial
        if self.recorder is not None:
            self.recorder.node_id = context.node_id

    # ---- asyncio's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.context.socket_opened(self._opened(transport))
        peer = transport.get_extra_info("peername")
        self.client.address = peer[0] if peer else ""
        self.context.opened(self)

    def data_received(self, data: bytes) -> None:
        nbytes = len(data)
        self._count(nbytes)
        self._requests_arrived(data, nbytes)
        if nbytes > SMALL_READ_BYTES:
            self.read_large()

    def next_buffer(self) -> memoryview:
        is_scarce = self._budget.is_full or self._read_ahead.is_scarce
        if self._received.is_plain and not is_scarce:
            return READ_VIEW
        view = self._received.next_read()
        if is_scarce and not self._reservation.is_held:
            return view[:SCARCE_READ_BYTES]
        return view

    def buffer_filled(self, nbytes: int) -> None:
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
        self._turn_back(nbytes)

    def _count(self, nbytes: int) -> None:
        self.was_heard = True
        self._counters.bytes_from_clients += nbytes
        if self.recorder is not None:
            self.recorder.bytes_in += nbytes

    def _requests_arrived(self, buf: bytes | bytearray, end: int) -> None:
        now_ms = self._now_ms()
        try:
            kept_from = self._take_requests(buf, end, now_ms)
            if self.is_gone:
                return
            if kept_from and self._reservation.is_under_way and not self._reservation.left_bytes:
                self._reservation.drop()
            if kept_from < end:
                self.read_large()
                if not self._reservation.keep(buf, kept_from, end):
                    self._no_room()
                    return
            if self.conversation.wants_attention:
                self._after_requests(now_ms)
        except Exception as error:  # noqa: BLE001 - logged there
            self._failed(error)

    def eof_received(self) -> bool:
        """Handle the end of the client's input.

        Requests in flight are still answered. Requests held behind a mute are dropped, except where one has
        no answer: its client waits for nothing else.
        """
        self._enter(LifeEvent.CLIENT_EOF)
        conversation = self.conversation
        if self.must_outlive_client:
            return True
        if conversation.awaits_answer:
            self._cancel_mute_timer()
        else:
            self.drop_held()
        if conversation.is_quiet:
            self._finish("client", "the client closed")
            return False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        context = self.context
        if self._transport is not None:
            context.socket_closed(self._transport)
            self._transport = None
        self._enter(LifeEvent.LOST)
        self._received.clear()
        self.drop_held()
        self._reservation.drop()
        self.share.hold(Purpose.TO_CLIENT, 0)
        self._read_ahead.drop_answers()
        if not self._close_cause:
            self._close_cause = "reset" if exc else "client"
        context.closed(self, self._close_cause)
        self._gate.closed()
        self._leave_broker()

    def pause_writing(self) -> None:
        """Stop reading answers and requests: the client does not read its answers."""
        self._gate.pause(Pause.NOT_READING)
        if self._transport is not None:
            self.share.hold(Purpose.TO_CLIENT, self._transport.get_write_buffer_size())
        if self.broker is not None:
            self.broker.pause_reading(Pause.PEER_BUSY)

    def resume_writing(self) -> None:
        self.share.hold(Purpose.TO_CLIENT, 0)
        self._gate.resume(Pause.NOT_READING)
        if self.broker is not None:
            self.broker.resume_reading(Pause.PEER_BUSY)

    # ---- answers ---------------------------------------------------------------------------------------

    def write(self, data: Data) -> None:
        """Send bytes to the client. Callers keep the order of its requests."""
        if self._transport is not None:
            self._counters.bytes_to_clients += len(data)
            if self.recorder is not None:
                self.recorder.bytes_out += len(data)
            self._send(self._transport, data)

    def flush_own_answers(self) -> None:
        """Send the gateway's own answers whose turn has come."""
        out = self.conversation.out
        if out:
            answers = b"".join(out)
            out.clear()
            self.write(answers)
            self._read_ahead.count_answers()

    def answered(self) -> None:
        """Continue requests that waited for these answers, or close if only they were waited for."""
        conversation = self.conversation
        if conversation.held and self._mute_timer is None and not conversation.awaits_answer:
            self._release()
        elif conversation.wants_attention:
            self._after_requests(self._now_ms())
        if self._gate.reasons:
            self._read_ahead.bound_answers()
        if self._life is not CONNECTED:
            self._finish_if_done()

    def read_sparingly(self) -> None:
        """Read both sockets into small buffers: the memory budget is spent."""
        self.read_large()
        if self.broker is not None:
            self.broker.read_large()

    # ---- requests --------------------------------------------------------------------------------------

    def _take_requests(self, buf: bytes | bytearray, end: int, now_ms: int) -> int:
        """Process every whole frame in buf[:end]; return the start of the incomplete rest.

        Frames that need no change are forwarded together in one write.
        """
        conversation = self.conversation
        frame_limit = self._login_limit_bytes if conversation.login_missing else self._frame_limit_bytes
        run_start = pos = 0
        most_judged = conversation.judged + JUDGED_PER_TURN
        if self._reservation.left_bytes:
            pos = self._pass_on(end, now_ms)
        for _ in range(MOST_FRAMES_PER_TURN):
            if end - pos < SIZE_PREFIX_BYTES:
                break
            size = frame_size(buf, pos)
            if not 0 <= size <= frame_limit:
                self._forward(buf, run_start, pos)
                raise too_large(size, frame_limit, of_login=conversation.login_missing)
            frame_end = pos + SIZE_PREFIX_BYTES + size
            if frame_end > end:
                if (
                    size > self._login_limit_bytes
                    and end - pos >= REQUEST_HEAD_BYTES
                    and is_of_login(buf, pos)
                ):
                    self._forward(buf, run_start, pos)
                    raise too_large(size, self._login_limit_bytes, of_login=True)
                if size > self._kept_frame_bytes and self._may_pass_on(buf, pos, end, size, now_ms):
                    pos = end
                break
            try:
                step = conversation.request(buf, pos + SIZE_PREFIX_BYTES, frame_end, now_ms)
            except KafkaProtocolError:
                self._forward(buf, run_start, pos)
                raise
            if step is not FORWARD:
                self._forward(buf, run_start, pos)
                run_start = frame_end
                if step is INSTEAD:
                    self.to_broker(conversation.instead)
                elif step is CLOSE:
                    self.flush_own_answers()
                    self.close(conversation.close_cause, conversation.close_reason)
                    return end
            pos = frame_end
            if conversation.judged >= most_judged:
                self._leave_rest(buf, pos, end)
                break
        else:
            self._leave_rest(buf, pos, end)
        self._forward(buf, run_start, pos)
        return end if self._rest else pos

    def _leave_rest(self, buf: bytes | bytearray, pos: int, end: int) -> None:
        if pos < end:
            self._rest_later(bytes(memoryview(buf)[pos:end]))

    def _may_pass_on(self, buf: bytes | bytearray, pos: int, end: int, size: int, now_ms: int) -> bool:
        """Start forwarding the request at `pos` while it arrives, or return False."""
        start = pos + SIZE_PREFIX_BYTES
        with memoryview(buf) as view:
            beginning = bytes(view[start : min(end, start + BEGINNING_BYTES)])
        return (
            self.broker is not None
            and self.conversation.may_pass(beginning, size, now_ms)
            and self._reservation.may_pass_on(SIZE_PREFIX_BYTES + size, end - pos)
        )

    def _pass_on(self, end: int, now_ms: int) -> int:
        """Return how many of the arrived bytes belong to the request being forwarded."""
        arrived_bytes = min(end, self._reservation.left_bytes)
        frame_bytes = self._reservation.passed_on(arrived_bytes)
        if frame_bytes:
            has_passed(self.conversation, frame_bytes - SIZE_PREFIX_BYTES, now_ms)
        return arrived_bytes

    def take_rest(self, rest: bytes) -> None:
        if not self.is_gone:
            self._requests_arrived(rest, len(rest))

    def _forward(self, buf: bytes | bytearray, start: int, end: int) -> None:
        if start != end:
            self.to_broker(run_of(buf, start, end))

    # ---- mute ------------------------------------------------------------------------------------------

    def _after_requests(self, now_ms: int) -> None:
        conversation = self.conversation
        conversation.wants_attention = False
        if conversation.refused:
            self.context.refusal_log.note(conversation.refused, self.describe, now_ms)
            conversation.refused.clear()
        if conversation.gateway_topic_requests:
            self.context.gateway_topic_log.note(conversation.gateway_topic_requests, self.describe, now_ms)
            conversation.gateway_topic_requests.clear()
        self.flush_own_answers()
        if conversation.to_broker:
            self.to_broker(b"".join(conversation.to_broker))
            conversation.to_broker.clear()
        exchange = conversation.alteration
        if exchange is not None and exchange.changes and exchange.changes is not self._administered:
            self._administered = exchange.changes
            self.context.administer(
                exchange.changes, exchange.only_check, partial(self._quotas_altered, exchange)
            )
        if conversation.muted_until_ms > now_ms or conversation.held:
            if self._read_ahead.bound_held():
                self.read_large()
            if self._mute_timer is None and not conversation.awaits_answer:
                self._set_mute_timer()
        self._read_ahead.bound_answers()

    def _quotas_altered(
        self, exchange: QuotaExchange, problems: list[str | None] | None, kept: Kept | None
    ) -> None:
        """Continue an AlterClientQuotas whose changes were checked or made. None: the outcome is unknown."""
        if problems is None:
            exchange.not_made(CHANGE_FAILED)
        else:
            exchange.changed(problems, kept)
        if self.conversation.alteration is exchange:
            alteration_answered(self.conversation)
            self._release()

    def _set_mute_timer(self) -> None:
        loop = self.context.loop
        self._mute_timer = loop.call_at(self.conversation.muted_until_ms / 1000, self._mute_ended)

    def _cancel_mute_timer(self) -> None:
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None

    def _mute_ended(self) -> None:
        self._mute_timer = None
        if self._now_ms() < self.conversation.muted_until_ms:
            self._set_mute_timer()
        else:
            self._release()

    def _release(self) -> None:
        """Continue with held requests as far as possible now."""
        if self.is_gone or self._gate.reasons & Pause.TOO_FAST:
            return
        now_ms = self._now_ms()
        conversation = self.conversation
        try:
            frames, must_close = conversation.release(now_ms)
            self._read_ahead.count_held()
            for data in in_few_writes(frames):
                self.to_broker(data)
            if must_close:
                self.flush_own_answers()
                self.close(conversation.close_cause, conversation.close_reason)
                return
            self._read_ahead.released()
            self._after_requests(now_ms)
            self._finish_if_done()
        except Exception as error:  # noqa: BLE001 - logged there
            self._failed(error)

    def drop_held(self) -> None:
        """Drop the held requests and the mute."""
        self._cancel_mute_timer()
        self.conversation.drop_held()
        self._read_ahead.count_held()
