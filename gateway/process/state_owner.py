"""The holder of the quota's state: answers the workers, speaks to the events topic, shows the gateway's metrics."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from functools import cached_property
from pathlib import Path
from typing import Final, cast

from prometheus_client import CollectorRegistry

from pidgate.gateway.clock import monotonic_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.metrics.reports import Reports
from pidgate.gateway.process import wire
from pidgate.gateway.process.wire import Kind, Message, WireError
from pidgate.gateway.quotas.administering import Administering
from pidgate.gateway.quotas.administration import InForce
from pidgate.gateway.quotas.reloading import Reloading, kept_beside
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.gateway.recording.setup import recorder_of
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.quota.changes import Change
from pidgate.quota.counters import UserCounters, UserSnapshot
from pidgate.quota.entities import User, resolve
from pidgate.quota.producer_ids import Answer, Question
from pidgate.quota.shared_refusals import SharedRefusals
from pidgate.quota.snapshots import snapshot
from pidgate.quota.state import failed_open
from pidgate.quota.sticky import WATCH_MS
from pidgate.version import version

log = logger()

TICK_S: Final = 1.0
MOST_TOLD_AGAIN: Final = 50_000
"""Refused ids that a worker is told of which comes later."""
MOST_UNREAD_BYTES: Final = 16 * 1024 * 1024
"""A worker that reads nothing is told nothing more; its questions answer themselves."""


class StateOwner:
    """`start`, then `until_stopped`; `drain` ends it, after the workers."""

    def __init__(
        self, settings: Settings, socket_path: str, incarnation: str, file: Path | None = None
    ) -> None:
        self._settings = settings
        self._quotas = settings.to_quotas()
        self._socket_path = socket_path
        self._loop = asyncio.get_running_loop()
        self._clock_ms = monotonic_ms(self._loop)
        self.keeper = QuotaStateManager(settings, run=incarnation.split(".")[0])
        self.keeper.on_topic_id = self._topic_id_known
        self._topic_ids: list[bytes] = []
        self.administration = QuotaStore(settings)
        self.administration.on_change = self._quotas_changed
        self._reloading = Reloading(
            file, settings, self.administration, self._users, kept=kept_beside(Path(socket_path))
        )
        self.administration.on_command = self.keeper.apply
        self.administration.on_topic_id = self._topic_id_known
        self._administer = Administering(self.administration).administer
        self.keeper.is_reached = lambda: self._reports.is_reached
        self.keeper.recorder = recorder_of(
            settings, self.keeper.publish, incarnation, applied_offsets=lambda: self.keeper.applied_offsets
        )
        self.keeper.on_refused_elsewhere = lambda user, producer_id, _now_ms: self.tell_refused(
            user, [producer_id]
        )
        self._refusals = SharedRefusals()
        self._reports = Reports()
        self._sessions: set[WorkerSession] = set()
        self._told_refused: deque[tuple[int, User, int]] = deque(maxlen=MOST_TOLD_AGAIN)
        self._gave_up: dict[User, int] = {}
        self._latest_ms = 0
        self._background: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()
        self._is_draining = False

    async def start(self) -> None:
        """Answer workers, then reach for what is remembered. Raises CannotListen, StateDirInUse."""
        self.keeper.open()
        self.administration.open()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._socket_path)
        self._server = await self._loop.create_unix_server(lambda: WorkerSession(self), self._socket_path)
        from pidgate.gateway.admin import site
        from pidgate.gateway.admin.quotas_api import QuotasApi

        quotas = QuotasApi(self._settings, self.administration, lambda: self.keeper.state, self._clock_ms)
        self._admin = await site.start(self._settings.admin.bind, self, quotas)
        self.keeper.start()
        self.administration.start()
        self._reloading.start()
        self._background.append(self._loop.create_task(self._tick()))

    async def until_stopped(self) -> None:
        await self._stopped.wait()

    async def drain(self) -> None:
        if self._is_draining:
            return
        self._is_draining = True
        await self._reloading.stop()
        for task in self._background:
            task.cancel()
        self._server.close()
        await self.administration.stop()
        await self.keeper.stop()
        await self._admin.close()
        self._stopped.set()

    def reload(self) -> None:
        """SIGHUP came, from the supervisor: the file is read again."""
        self._reloading.reload()

    # ---- workers ---------------------------------------------------------------------------------------

    def worker_connected(self, session: WorkerSession) -> None:
        self._sessions.add(session)
        log.info(Event.WORKER_CONNECTED, worker=session.worker, pid=session.process)
        session.tell_offsets(self.keeper.applied_offsets)
        for topic_id in self._topic_ids:
            session.send(Kind.TOPIC_ID, topic_id)
        self._tell_quotas(session)
        # It may be a successor, or the others were faster: what was refused before it came holds for it, too.
        oldest_ms = self._clock_ms() - WATCH_MS
        while self._told_refused and self._told_refused[0][0] < oldest_ms:
            self._told_refused.popleft()
        for _, user, producer_id in self._told_refused:
            session.send(Kind.REFUSED, (user, producer_id))

    def _topic_id_known(self, topic_id: bytes) -> None:
        self._topic_ids.append(topic_id)
        for session in self._sessions:
            session.send(Kind.TOPIC_ID, topic_id)

    def _quotas_changed(self, in_force: InForce) -> None:
        self._quotas = in_force.quotas
        self.keeper.set_quotas(in_force.quotas, in_force.provenance)
        for session in self._sessions:
            self._tell_quotas(session)

    def _tell_quotas(self, session: WorkerSession) -> None:
        version = self.keeper.recorder.quota_version if self.keeper.recorder is not None else 0
        session.send(Kind.QUOTAS, (self._quotas, version))

    def _change(self, session: WorkerSession, number: int, only_check: bool, changes: list[Change]) -> None:
        self._administer(
            changes,
            only_check,
            lambda problems, kept: session.send(Kind.CHANGED, (number, problems, kept)),
        )

    def worker_lost(self, session: WorkerSession) -> None:
        self._sessions.discard(session)
        if session.process:
            self._reports.retire(session.process)
        if session.process and not session.said_bye:
            log.warning(Event.WORKER_LOST, worker=session.worker, pid=session.process)
            self.keeper.worker_lost(session.worker)

    def take(self, session: WorkerSession, message: Message) -> None:
        """One message of a worker."""
        body = message.body
        if message.kind is Kind.EVENT:
            self.keeper.publish(*body)
        elif message.kind is Kind.ASK:
            self._answer(session, *body)
        elif message.kind is Kind.REPORT:
            self._reports.take(session.process, body, self._clock_ms())
        elif message.kind is Kind.CHANGE:
            self._change(session, *body)
        elif message.kind is Kind.BYE:
            session.said_bye = True
        elif message.kind is Kind.UNCHARGED:
            for user, producer_id in body:
                self.keeper.state.insert_uncharged(user, producer_id, self._now_ms(0))
        elif message.kind is Kind.INHERIT:
            user, old, new = body
            self.keeper.state.inherit(user, old, new, self._now_ms(0))

    def _now_ms(self, asked_ms: int) -> int:
        """Never back: workers read the machine's one monotonic clock, but their messages overtake each other."""
        self._latest_ms = max(self._latest_ms, asked_ms)
        return self._latest_ms

    def _answer(self, session: WorkerSession, number: int, asked_ms: int, question: Question) -> None:
        now_ms = self._now_ms(asked_ms)
        answer, refused = self._refusals.decide(self._decided, question, now_ms)
        if answer.decisions:
            # Its event says what the decision knew of other gateways; the worker writes it.
            session.tell_offsets(self.keeper.applied_offsets)
        session.send(Kind.ANSWER, (number, answer))
        if refused:
            self.tell_refused(question.user, refused, but=session)

    def _decided(self, question: Question, now_ms: int) -> Answer:
        try:
            answer = self.keeper.state.decide(question, now_ms)
        except Exception as problem:
            log.exception(Event.QUOTA_FAILED_OPEN, reason=str(problem))
            answer = None
        if answer is None:
            answer, failures = failed_open(self.keeper.state, question, now_ms)
            self._reports.failed_open(1 + failures)
        return answer

    def tell_refused(self, user: User, producer_ids: list[int], *, but: WorkerSession | None = None) -> None:
        """Every worker watches the id from now on: its first batch above 0 there is refused once."""
        now_ms = self._clock_ms()
        for producer_id in producer_ids:
            self._told_refused.append((now_ms, user, producer_id))
            for session in self._sessions:
                if session is not but:
                    session.send(Kind.REFUSED, (user, producer_id))

    # ---- what the admin site asks ----------------------------------------------------------------------

    def is_ready(self) -> bool:
        """What is remembered is restored, and some worker has reached the cluster."""
        return self.keeper.is_restored and self._reports.is_reached and not self._is_draining

    def not_ready_reason(self) -> str:
        if self._is_draining:
            return "the gateway drains"
        return self._reports.failure if not self._reports.is_reached else self.keeper.progress

    @cached_property
    def registry(self) -> CollectorRegistry:
        """Metrics of the gateway: what all workers counted, and what the state knows of users."""
        from pidgate.gateway.metrics.byte_rates import ByteCollector
        from pidgate.gateway.metrics.quota_store import BookCollector
        from pidgate.gateway.metrics.registry import build_registry
        from pidgate.gateway.metrics.reloading import ReloadCollector
        from pidgate.gateway.metrics.state import KeeperCollector

        return build_registry(
            self._reports.counters,
            self._users,
            self.is_ready,
            version(),
            KeeperCollector(self.keeper),
            ReloadCollector(self._reloading),
            BookCollector(self.administration),
            ByteCollector(lambda: self._reports.bytes.state(self._quotas.bytes, self._clock_ms())),
        )

    def _users(self) -> list[UserSnapshot]:
        return self._reports.users(self._snapshot, self.keeper.state.users())

    def _snapshot(self, user: User) -> UserSnapshot:
        counted = UserCounters(gave_up=self._gave_up.get(user, 0))
        return snapshot(user, counted, resolve(self._quotas, user), self.keeper.state, 0, self._clock_ms())

    # ---- once a second ---------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now_ms = self._now_ms(self._clock_ms())
            try:
                self._refusals.sweep(now_ms)
                gave_up = self.keeper.state.sweep(now_ms)
            except Exception as error:
                log.exception(Event.UNEXPECTED_ERROR, reason=f"once-a-second work: {error}")
                continue
            for gone in gave_up:
                self._gave_up[gone.user] = self._gave_up.get(gone.user, 0) + 1
            if gave_up and self.keeper.recorder is not None:
                self.keeper.recorder.gave_up(gave_up)
            for session in self._sessions:
                session.tell_offsets(self.keeper.applied_offsets)


class WorkerSession(asyncio.Protocol):
    """The connection of one worker process."""

    def __init__(self, state_owner: StateOwner) -> None:
        self._state_owner = state_owner
        self._decoder = wire.Decoder()
        self._transport: asyncio.Transport | None = None
        self.worker = 0
        self.process = 0
        self.said_bye = False
        self._told_offsets: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                if self.process:
                    self._state_owner.take(self, message)
                else:
                    self._welcome(message)
        except Exception as error:
            log.exception(Event.UNEXPECTED_ERROR, reason=f"worker {self.worker}: {error}")
            if self._transport is not None:
                self._transport.abort()

    def _welcome(self, message: Message) -> None:
        if message.kind is not Kind.HELLO or message.body[0] != wire.WIRE_VERSION:
            raise WireError("a worker of another version; restart the whole gateway")
        _, self.worker, self.process = message.body
        self._state_owner.worker_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._state_owner.worker_lost(self)

    def send(self, kind: Kind, body: object) -> None:
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() < MOST_UNREAD_BYTES:
            transport.write(wire.encoded(kind, body))

    def tell_offsets(self, offsets: list[int]) -> None:
        """Unless it knows them."""
        if offsets != self._told_offsets:
            self._told_offsets = offsets
            self.send(Kind.OFFSETS, offsets)
