"""The traffic of a gateway whose connections are in workers: they ask this process, the state owner, over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from pidgate.gateway.clock import monotonic_ms
from pidgate.gateway.cluster.token_owners import TokenOwners
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, LogLimit, begun_anew, logger
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.metrics.reports import ByteState, Reports
from pidgate.gateway.process import wire
from pidgate.gateway.process.message_reader import MessageReader
from pidgate.gateway.process.open_connections import OpenConnections
from pidgate.gateway.process.progress import BEAT_S, Progress, progress_path
from pidgate.gateway.process.wire import Kind, Message, WireError
from pidgate.gateway.proxy.connection_quotas import Counts
from pidgate.gateway.quotas.administration import Administer
from pidgate.gateway.recording.recorder import Recorder
from pidgate.gateway.state.admitted import admitted_in
from pidgate.gateway.state.event_log import EventLog
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.quota.changes import Change
from pidgate.quota.counters import UserCounters, UserCountersTable, UserSnapshot
from pidgate.quota.entities import User, resolve
from pidgate.quota.fail_open import FailOpen
from pidgate.quota.refused_ids import MOST_SHARED
from pidgate.quota.settings import Quotas
from pidgate.quota.state import Answer, LocalState, Question, complete

log = logger()

_undecided = LogLimit()
"""Of questions that could not be decided."""

TICK_S: Final = 1.0
GONE_LOOK_S: Final = 0.02
SAME_SIGNAL_S: Final = 0.5
"""Time in which workers say that they drain, too, if they do."""
MOST_REFUSED_KEPT: Final = 50_000
"""Refused ids that are sent to a worker that connects later."""
MOST_UNREAD_BYTES: Final = 16 * 1024 * 1024
"""A worker that reads nothing for so long is cut off; when it connects again it is sent all that holds."""


class Workers:
    """A GatewayTraffic: `start`, then `drain` once, after the workers have ended."""

    def __init__(
        self,
        settings: Settings,
        socket_path: str,
        manager: QuotaStateManager,
        events: EventLog,
        recorder: Recorder | None,
        administer: Administer,
    ) -> None:
        self._quotas = settings.to_quotas()
        self._workers_end_s = settings.drain_timeout_ms / 1000 + wire.LAST_EVENTS_S
        self._socket_path = socket_path
        self._manager = manager
        self._events = events
        self._recorder = recorder
        self._administer = administer
        self._loop = asyncio.get_running_loop()
        self._clock_ms = monotonic_ms(self._loop)
        self._refusals = manager.refusals
        self._refusals.limit = MOST_SHARED
        self._fail_open = FailOpen()
        self._reports = Reports()
        self._sessions: dict[WorkerSession, None] = {}
        """In the order in which they came, as everything that is gone through."""
        self._connections = OpenConnections()
        self._token_owners = TokenOwners()
        self._topic_ids: list[bytes] = []
        self._gave_up = UserCountersTable()
        self._latest_ms = 0
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Answer workers. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._socket_path)
        self._progress = Progress(progress_path(Path(self._socket_path)))
        self._beat()
        self._server = await self._loop.create_unix_server(lambda: WorkerSession(self), self._socket_path)
        self._ticking = self._loop.create_task(begun_anew("once-a-second work", self._tick))

    def _beat(self) -> None:
        self._progress.advance()
        self._beating = self._loop.call_later(BEAT_S, self._beat)

    async def drain(self) -> None:
        """Stop answering, once all workers have gone: where all got the signal, they drain at the same time."""
        self._server.close()
        began_s, they_drain = self._loop.time(), False
        while self._sessions:
            they_drain = they_drain or any(session.is_draining for session in self._sessions)
            if self._loop.time() - began_s > (self._workers_end_s if they_drain else SAME_SIGNAL_S):
                break
            await asyncio.sleep(GONE_LOOK_S)
        self._beating.cancel()
        if self._ticking is not None:
            self._ticking.cancel()

    # ---- GatewayTraffic --------------------------------------------------------------------------------

    @property
    def counters(self) -> Counters:
        return self._reports.counters

    @property
    def sticky_entries(self) -> None:
        """Workers have those."""

    @property
    def is_reached(self) -> bool:
        return self._reports.is_reached

    @property
    def failure(self) -> str:
        return self._reports.failure

    def users(self) -> Iterator[UserSnapshot]:
        return self._reports.users(self._snapshot, self._manager.state.users())

    def byte_state(self) -> ByteState:
        return self._reports.bytes.state(self._quotas.bytes, self._clock_ms())

    def set_quotas(self, quotas: Quotas) -> None:
        self._quotas = quotas
        for session in self._sessions:
            self._send_quotas(session)

    def use_state(self, state: LocalState) -> None:
        """Nothing to do: each question is put to the manager's state of the moment."""

    def refused_elsewhere(self, user: User, producer_id: int, now_ms: int) -> None:
        self._refusals.watched(user, producer_id, now_ms)
        self._send_refused(user, [producer_id])

    def learn_topic_id(self, topic_id: bytes) -> None:
        if topic_id in self._topic_ids:
            return
        self._topic_ids.append(topic_id)
        self._send_to_all(Kind.TOPIC_ID, topic_id)

    # ---- sessions --------------------------------------------------------------------------------------

    def worker_connected(self, session: WorkerSession) -> None:
        """Send what the worker has to know before its first question is answered."""
        self._sessions[session] = None
        log.info(Event.WORKER_CONNECTED, worker=session.worker, pid=session.process)
        session.send_offsets(self._events.applied_offsets)
        for topic_id in self._topic_ids:
            session.send(Kind.TOPIC_ID, topic_id)
        self._send_quotas(session)
        session.send(Kind.CONNECTIONS_ELSEWHERE, self._connections.joined(session.process))
        session.send(Kind.TOKEN_OWNERS, self._token_owners.known_tokens())
        # It may be a successor, or the others were faster: what was refused before it came holds for it, too.
        for user, producer_id in self._refusals.to_watch(self._clock_ms())[-MOST_REFUSED_KEPT:]:
            session.send(Kind.REFUSED, (user, producer_id))
        session.may_lag_from_here()

    def worker_lost(self, session: WorkerSession) -> None:
        """Keep what the worker had counted."""
        self._sessions.pop(session, None)
        self._send_connections(self._connections.lost(session.process))
        if session.process:
            self._reports.retire(session.process)
        if session.process and not session.is_leaving:
            log.warning(Event.WORKER_LOST, worker=session.worker, pid=session.process)
            self._manager.worker_lost(session.worker)

    def take(self, session: WorkerSession, message: Message) -> None:
        """Handle one message of a worker."""
        self._progress.advance()
        body = message.body
        if message.kind is Kind.EVENT:
            session.events_taken += 1
            self._events.publish(*body)
        elif message.kind is Kind.ASK:
            self._answer(session, *body)
        elif message.kind is Kind.REPORT:
            session.is_draining = body.is_draining
            self._reports.take(session.process, body, self._clock_ms())
        elif message.kind is Kind.CHANGE:
            self._change(session, *body)
        elif message.kind is Kind.CONNECTIONS:
            self._send_connections(self._connections.take(session.process, body))
        elif message.kind is Kind.TOKEN_OWNERS:
            if learnt := self._token_owners.take_shared(body):
                self._send_to_all(Kind.TOKEN_OWNERS, learnt, but=session)
        elif message.kind is Kind.BYE:
            session.leave()
        elif message.kind is Kind.UNCHARGED:
            last_number, ids = body
            now_ms = self._now_ms()
            for passed in ids:
                passed.insert_into(self._manager.state, now_ms)
            session.send(Kind.INSERTED, last_number)
        elif message.kind is Kind.WATCHED:
            self._watched(session, body)
        elif message.kind is Kind.EVENT_AGAIN:
            self._take_again(session, *body)

    def _take_again(self, session: WorkerSession, key: str, value: bytes) -> None:
        """Take an event that another state owner, or this one, may have taken or not.

        Readers of the topic know an event that is there twice. What it admits is remembered here, uncharged: its charge
        may be in the balance that was restored, and no admission is charged twice.
        """
        session.events_taken += 1
        self._events.publish(key, value)
        if (admitted := admitted_in(value, self._manager.names.user_of)) is not None:
            admitted.insert_into(self._manager.state, self._now_ms())

    def _now_ms(self, asked_ms: int | None = None) -> int:
        """Return the time at which a worker asked, or the present.

        Never goes back: workers read the machine's one monotonic clock, but their messages overtake each other.
        """
        self._latest_ms = max(self._latest_ms, self._clock_ms() if asked_ms is None else asked_ms)
        return self._latest_ms

    def _answer(self, session: WorkerSession, number: int, asked_ms: int, question: Question) -> None:
        now_ms = self._now_ms(asked_ms)
        complete(question, self._refusals, now_ms)
        answer = self._decide(question, now_ms)
        if answer.decisions:
            # Its event holds what the decision knew of other gateways; the worker writes it.
            session.send_offsets(self._events.applied_offsets)
        session.send(Kind.ANSWER, (number, answer))
        if answer.refused:
            self._send_refused(question.user, [asked.producer_id for asked in question.ids], but=session)

    def _decide(self, question: Question, now_ms: int) -> Answer:
        try:
            answer = self._manager.state.decide(question, now_ms)
        except Exception as problem:
            if (left_out := _undecided.take(None, now_ms)) is not None:
                log.exception(Event.QUOTA_FAILED_OPEN, reason=str(problem), suppressed_count=left_out)
            answer = None
        if answer is None:
            before = self._fail_open.passed
            answer = self._fail_open.answer(self._quotas, self._manager.state, question, now_ms)
            self._reports.failed_open(self._fail_open.passed - before)
        return answer

    def _change(self, session: WorkerSession, number: int, only_check: bool, changes: list[Change]) -> None:
        self._administer(
            changes, only_check, lambda problems, kept: session.send(Kind.CHANGED, (number, problems, kept))
        )

    def _send_quotas(self, session: WorkerSession) -> None:
        version = self._recorder.quota_version if self._recorder is not None else 0
        session.send(Kind.QUOTAS, (self._quotas, version))

    def _send_connections(self, elsewhere: dict[int, Counts]) -> None:
        for session in self._sessions:
            if session.process in elsewhere:
                session.send(Kind.CONNECTIONS_ELSEWHERE, elsewhere[session.process])

    def _send_to_all(self, kind: Kind, body: object, *, but: WorkerSession | None = None) -> None:
        for session in self._sessions:
            if session is not but:
                session.send(kind, body)

    def _send_refused(self, user: User, producer_ids: list[int], *, but: WorkerSession | None = None) -> None:
        """Have every other worker watch the ids: the first batch above 0 of one there is refused once."""
        for producer_id in producer_ids:
            self._send_to_all(Kind.REFUSED, (user, producer_id), but=but)

    def _watched(self, session: WorkerSession, ids: list[tuple[User, int]]) -> None:
        """Take over what a worker watches and this state owner, perhaps a new one, does not know to be refused."""
        now_ms = self._now_ms()
        for user, producer_id in ids:
            if not self._refusals.is_watched(user, producer_id, now_ms):
                self._refusals.watched(user, producer_id, now_ms)
                self._send_refused(user, [producer_id], but=session)

    def _snapshot(self, user: User) -> UserSnapshot:
        counted = self._gave_up.find(user) or UserCounters()
        now_ms = self._clock_ms()
        status = self._manager.state.status(user, now_ms)
        return counted.snapshot(user, resolve(self._quotas, user), status, 0, now_ms)

    async def _tick(self) -> None:
        """Once a second: forget what is over, publish who gave up, send applied offsets."""
        while True:
            await asyncio.sleep(TICK_S)
            now_ms = self._now_ms()
            gave_up = self._manager.state.sweep(now_ms)
            for gone in gave_up:
                self._gave_up.of(gone.user, now_ms).gave_up += 1
            self._gave_up.drop_idle(set(self._manager.state.users()), now_ms)
            if gave_up and self._recorder is not None:
                self._recorder.gave_up(gave_up)
            for session in self._sessions:
                session.send_offsets(self._events.applied_offsets)
                session.acknowledge_events()


class WorkerSession(asyncio.Protocol):
    """The connection of one worker process."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._reader: MessageReader | None = None
        self._transport: asyncio.Transport | None = None
        self.worker = 0
        self.process = 0
        self.is_leaving = self.is_draining = False
        self._sent_offsets: list[int] = []
        self.events_taken = 0
        self._events_taken_before = self._events_safe = 0
        self._most_unread_bytes: int | None = None
        """None: what is sent at the beginning always finds room, or a worker would be cut off for ever."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._reader = MessageReader(self._transport, self._take, self._failed)

    def data_received(self, data: bytes) -> None:
        assert self._reader is not None
        self._reader.feed(data)

    def _take(self, message: Message) -> None:
        if self.process:
            self._workers.take(self, message)
        else:
            self._welcome(message)

    def _failed(self, error: Exception) -> None:
        log.error(Event.UNEXPECTED_ERROR, reason=f"worker {self.worker}: {error}", exc_info=error)

    def _welcome(self, message: Message) -> None:
        if message.kind is not Kind.HELLO or message.body[0] != wire.WIRE_VERSION:
            raise WireError("a worker of another version; restart the whole gateway")
        _, self.worker, self.process = message.body
        self._workers.worker_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reader is not None:
            self._reader.end()
        self._transport = None
        self._workers.worker_lost(self)

    def send(self, kind: Kind, body: object) -> None:
        """Send a message. None is left out: a worker that does not read is cut off, and begins anew."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        most_unread_bytes = self._most_unread_bytes
        if most_unread_bytes is None or transport.get_write_buffer_size() < most_unread_bytes:
            transport.write(wire.encoded(kind, body))
        else:
            log.error(Event.WORKER_LOST, worker=self.worker, pid=self.process)
            transport.abort()

    def leave(self) -> None:
        """Close the session: the worker has sent its last message, and waits for this."""
        self.is_leaving = True
        if self._transport is not None:
            self._transport.close()

    def may_lag_from_here(self) -> None:
        """Cut the worker off for what it leaves unread from now on; what it has to know at the beginning is sent."""
        if self._transport is not None:
            self._most_unread_bytes = self._transport.get_write_buffer_size() + MOST_UNREAD_BYTES

    def send_offsets(self, offsets: list[int]) -> None:
        """Send how far others' events are applied, if that has changed."""
        if offsets != self._sent_offsets:
            self._sent_offsets = offsets
            self.send(Kind.OFFSETS, offsets)

    def acknowledge_events(self) -> None:
        """Acknowledge what was taken before the last call: journal and topic have it some 200 ms after it was taken."""
        if self._events_taken_before != self._events_safe:
            self._events_safe = self._events_taken_before
            self.send(Kind.EVENTS_SAFE, self._events_safe)
        self._events_taken_before = self.events_taken
