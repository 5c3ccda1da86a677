"""The client's socket of one connection: reads requests, asks the conversation, hands on what may pass.

It owns the connection's timers and its back-pressure. Reading pauses for as long as any reason stands
(`Pause`): the broker is not connected yet or does not keep up, the read-ahead behind a mute is full, the
memory budget is spent, the gateway drains.
"""

from __future__ import annotations

import asyncio
from enum import IntFlag
from typing import cast

from gateway.broker_channel import BrokerChannel
from gateway.connection import ConnectionContext
from gateway.conversation import CLOSE, FORWARD, SIZE_PREFIX_BYTES, Conversation
from gateway.inbox import SIZE, Inbox
from gateway.logs import Event, logger
from protocol.errors import FrameTooLarge, KafkaProtocolError
from quota.admission import Visitor

log = logger()

WRITE_HIGH_BYTES = 512 * 1024
"""Back-pressure begins here: two full reads, so that a bulk transfer does not stop and go at every read."""

ORDINARY_CAUSES = ("client", "drain", "idle", "unreachable")
"""Connections end in these ways every day, or the cause has its line in the log already."""

ANONYMOUS = "ANONYMOUS"
"""Kafka's principal of a client that did not authenticate."""


class Pause(IntFlag):
    """Why nothing is read from the client just now."""

    CONNECTING = 1
    BROKER_BUSY = 2
    HELD_FULL = 4
    BUDGET = 8
    DRAINING = 16


class ClientChannel(asyncio.BufferedProtocol):
    """One accepted connection. Lives until both of its sockets are gone."""

    def __init__(self, context: ConnectionContext) -> None:
        self.context = context
        self.connection_id = context.next_connection_id()
        self.visitor = Visitor(user=ANONYMOUS, client_id="", address="", connection_id=self.connection_id)
        self.conversation = Conversation(context.admission, self.visitor, context.help_url, context.counters)
        self.last_byte_ms = context.now_ms()
        self.broker: BrokerChannel | None = None
        self._transport: asyncio.Transport | None = None
        self._inbox = Inbox()
        self._early = bytearray()
        """What came before the broker was connected."""
        self._paused = Pause(0)
        self._large_bytes = 0
        self._held_counted_bytes = 0
        self._mute_timer: asyncio.TimerHandle | None = None
        self._half_closed = False
        self._close_cause = ""

    # ---- asyncio's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's by shape, not by class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        peer = transport.get_extra_info("peername")
        self.visitor.address = peer[0] if peer else ""
        self.context.opened(self)
        self.context.connect_upstream(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.next_read()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._read(nbytes)
        except Exception:
            log.exception(Event.UNEXPECTED_ERROR, **self.describe())
            self.close("error", "an unexpected error in the gateway")

    def _read(self, nbytes: int) -> None:
        context = self.context
        now_ms = context.now_ms()
        self.last_byte_ms = now_ms
        context.counters.bytes_from_clients += nbytes
        arrived = self._inbox.received(nbytes)
        if arrived is None:
            return
        buf, end = arrived
        if self.broker is None:
            # uvloop starts reading after connection_made whatever was asked for in it: pause at the first bytes.
            self._early += memoryview(buf)[:end]
            self._pause(Pause.CONNECTING)
            return
        self._requests_arrived(buf, end, now_ms)

    def _requests_arrived(self, buf: bytearray, end: int, now_ms: int) -> None:
        context = self.context
        if self._large_bytes:
            context.budget.give_back(self._large_bytes)
            self._large_bytes = 0
        try:
            kept_from = self._take_requests(buf, end, now_ms)
        except KafkaProtocolError as error:
            context.counters.frames_malformed += 1
            self.close("protocol", str(error))
            return
        if self._transport is None or self._transport.is_closing():
            return
        if kept_from < end:
            self._keep(buf, kept_from, end)
        self._after_requests(now_ms)

    def eof_received(self) -> bool:
        """The client sends no more. What is in flight is still answered; what waits behind a mute is not sent."""
        self._half_closed = True
        self._cancel_mute_timer()
        self.conversation.drop_held()
        self._count_held()
        if self.conversation.is_quiet:
            self._finish("client", "the client closed")
            return False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        context = self.context
        self._transport = None
        self._cancel_mute_timer()
        self.conversation.drop_held()
        self._count_held()
        context.budget.leave(self)
        if self._large_bytes:
            context.budget.give_back(self._large_bytes)
            self._large_bytes = 0
        if not self._close_cause:
            self._close_cause = "reset" if exc else "client"
        context.closed(self, self._close_cause)
        if self.broker is not None:
            self.broker.close()

    def pause_writing(self) -> None:
        if self.broker is not None:
            self.broker.pause_reading()

    def resume_writing(self) -> None:
        if self.broker is not None:
            self.broker.resume_reading()

    # ---- the broker's side -----------------------------------------------------------------------------

    def broker_connected(self, broker: BrokerChannel) -> None:
        if self._transport is None:
            broker.close()
            return
        self.broker = broker
        if self._early:
            early, self._early = self._early, bytearray()
            self._requests_arrived(early, len(early), self.context.now_ms())
        self._resume(Pause.CONNECTING)

    def broker_lost(self, reason: str) -> None:
        """The broker's socket is gone: whatever is in flight, the client must learn of it now."""
        if self._half_closed and self.conversation.is_quiet:
            self.close("client", reason)
        else:
            self.close("upstream", reason)

    def broker_busy(self, is_busy: bool) -> None:
        if is_busy:
            self.context.counters.reads_paused += 1
            self._pause(Pause.BROKER_BUSY)
        else:
            self._resume(Pause.BROKER_BUSY)

    def write(self, data: bytes) -> None:
        """Bytes for the client, in the order of its requests."""
        if self._transport is not None:
            self.context.counters.bytes_to_clients += len(data)
            self._transport.write(data)

    def flush_own_answers(self) -> None:
        """Send the answers of our own whose turn has come."""
        out = self.conversation.out
        if out:
            answers = b"".join(out)
            out.clear()
            self.write(answers)

    def answered(self) -> None:
        """Answers have passed: close now if that is all there was to wait for."""
        if (self._half_closed or Pause.DRAINING in self._paused) and self.conversation.is_quiet:
            self._finish("client" if self._half_closed else "drain", "everything in flight was answered")

    # ---- closing ---------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Take no more requests; close as soon as nothing is in flight. Does not wait for a mute."""
        self._pause(Pause.DRAINING)
        self.conversation.drop_held()
        self._count_held()
        if self.conversation.is_quiet:
            self._finish("drain", "the gateway drains")

    def close(self, cause: str, reason: str) -> None:
        """Close both sides; answers already written still leave."""
        if self._transport is None or self._transport.is_closing():
            return
        self._finish(cause, reason)

    def _finish(self, cause: str, reason: str) -> None:
        if not self._close_cause:
            self._close_cause = cause
            say = log.debug if cause in ORDINARY_CAUSES else log.warning
            say(Event.CONNECTION_CLOSED, cause=cause, reason=reason, **self.describe())
        if self._transport is not None:
            self._transport.close()

    def describe(self) -> dict[str, object]:
        """Who this is, for a log line."""
        visitor = self.visitor
        return {
            "connection_id": self.connection_id,
            "listener": self.context.listener_name,
            "node_id": self.context.node_id,
            "user": visitor.user,
            "client_id": visitor.client_id,
            "address": visitor.address,
        }

    # ---- requests --------------------------------------------------------------------------------------

    def _take_requests(self, buf: bytearray, end: int, now_ms: int) -> int:
        """Hand on every whole frame in buf[:end]; returns where the incomplete rest begins.

        Frames that need nothing are forwarded together, in one write.
        """
        request = self.conversation.request
        frame_limit = self.context.frame_limit_bytes
        run_start = pos = 0
        while end - pos >= SIZE_PREFIX_BYTES:
            size = SIZE.unpack_from(buf, pos)[0]
            if not 0 <= size <= frame_limit:
                self._forward(buf, run_start, pos)
                raise _too_large(size, frame_limit)
            frame_end = pos + SIZE_PREFIX_BYTES + size
            if frame_end > end:
                break
            try:
                step = request(buf, pos + SIZE_PREFIX_BYTES, frame_end, now_ms)
            except KafkaProtocolError:
                self._forward(buf, run_start, pos)
                raise
            if step is not FORWARD:
                self._forward(buf, run_start, pos)
                run_start = frame_end
                if step is CLOSE:
                    self.close(self.conversation.close_cause, self.conversation.close_reason)
                    return end
            pos = frame_end
        self._forward(buf, run_start, pos)
        return pos

    def _forward(self, buf: bytearray, start: int, end: int) -> None:
        if start == end or self.broker is None:
            return
        if end - start == len(buf):
            self.broker.write(buf)  # a large frame in its own buffer: nobody else holds it
        else:
            self.broker.write(bytes(memoryview(buf)[start:end]))

    def _keep(self, buf: bytearray, start: int, end: int) -> None:
        large_bytes = self._inbox.keep(buf, start, end)
        if not large_bytes:
            return
        if large_bytes - SIZE_PREFIX_BYTES > self.context.frame_limit_bytes:
            self.close(
                "protocol", str(_too_large(large_bytes - SIZE_PREFIX_BYTES, self.context.frame_limit_bytes))
            )
        elif self.context.budget.is_full:
            self._pause(Pause.BUDGET)
            self.context.budget.wait(self, lambda: self._expect_large(large_bytes))
        else:
            self._expect_large(large_bytes)

    def _expect_large(self, large_bytes: int) -> None:
        # Reserved whole before the first byte is read, as Kafka's memory pool does: frames that have begun
        # can always be finished, so a full budget never locks itself.
        self.context.budget.take(large_bytes)
        self._large_bytes = large_bytes
        self._inbox.expect_large(large_bytes)
        self._resume(Pause.BUDGET)

    # ---- mute ------------------------------------------------------------------------------------------

    def _after_requests(self, now_ms: int) -> None:
        conversation = self.conversation
        if conversation.refused:
            self.context.refusal_log.note(conversation.refused, self.describe, now_ms)
            conversation.refused.clear()
        self.flush_own_answers()
        if conversation.muted_until_ms > now_ms or conversation.held:
            self._count_held()
            if conversation.wants_no_more:
                self._pause(Pause.HELD_FULL)
            if self._mute_timer is None:
                self._set_mute_timer()

    def _set_mute_timer(self) -> None:
        loop = self.context.loop
        self._mute_timer = loop.call_at(self.conversation.muted_until_ms / 1000, self._mute_ended)

    def _cancel_mute_timer(self) -> None:
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None

    def _mute_ended(self) -> None:
        self._mute_timer = None
        if self._transport is None or self._transport.is_closing():
            return
        now_ms = self.context.now_ms()
        conversation = self.conversation
        if now_ms < conversation.muted_until_ms:
            self._set_mute_timer()
            return
        try:
            frames, must_close = conversation.release(now_ms)
        except KafkaProtocolError as error:
            self.context.counters.frames_malformed += 1
            self.close("protocol", str(error))
            return
        if frames and self.broker is not None:
            self.broker.write(b"".join(frames))
        if must_close:
            self.flush_own_answers()
            self.close(conversation.close_cause, conversation.close_reason)
            return
        if not conversation.wants_no_more:
            self._resume(Pause.HELD_FULL)
        self._after_requests(now_ms)

    def _count_held(self) -> None:
        """Bring the budget up to date with what is held behind the mute."""
        change = self.conversation.held_bytes - self._held_counted_bytes
        self._held_counted_bytes += change
        if change > 0:
            self.context.budget.take(change)
        elif change < 0:
            self.context.budget.give_back(-change)

    # ---- reading ---------------------------------------------------------------------------------------

    def _pause(self, why: Pause) -> None:
        if not self._paused and self._transport is not None:
            self._transport.pause_reading()
        self._paused |= why

    def _resume(self, why: Pause) -> None:
        if why not in self._paused:
            return
        self._paused &= ~why
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


def _too_large(frame_bytes: int, limit_bytes: int) -> FrameTooLarge:
    if frame_bytes < 0:
        return FrameTooLarge(f"a frame of {frame_bytes} bytes: this is not Kafka's protocol")
    return FrameTooLarge(f"a frame of {frame_bytes} bytes, limits.frame allows {limit_bytes}")
