"""A worker: the traffic of some of the gateway's connections, in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, begun_anew, logger
from pidgate.gateway.metrics.reports import byte_changes_of, report_of
from pidgate.gateway.process import held_notes, wire
from pidgate.gateway.process.byte_cells import ByteCells, NotTheFile, cells_path
from pidgate.gateway.process.link import StateOwnerLink
from pidgate.gateway.process.outside import Outside
from pidgate.gateway.process.traffic import Traffic
from pidgate.gateway.proxy.connection_quotas import Counts
from pidgate.gateway.recording.setup import recorder_of
from pidgate.protocol.delegation_tokens import TokenOwner
from pidgate.quota.counters import SAMPLE_MS
from pidgate.quota.entities import User
from pidgate.quota.held_beginnings import HeldBeginnings
from pidgate.quota.settings import Quotas
from pidgate.quota.state import Answer, Question

log = logger()

REPORT_S: Final = 1.0
REPORTED_USERS: Final = 500
"""In one report: some 8 ms, and as long for the state owner. Others are in the next reports."""
CONNECTIONS_S: Final = 0.02
"""A fleet that comes back is counted so often, not with each connection."""


class Worker:
    """`start`, then `until_stopped`; `drain` ends it. The link's StateListener."""

    def __init__(
        self,
        settings: Settings,
        number: int,
        socket_path: str,
        incarnation: str,
        outside: Outside | None = None,
    ) -> None:
        outside = outside or Outside()
        self._link = StateOwnerLink(socket_path, number, outside.process_id, self)
        self._recorder = recorder_of(settings, self._link, incarnation, worker=number)
        if self._recorder is not None:
            self._recorder.quota_version = 1  # of the quotas that the state owner started with
        self._traffic = Traffic(
            settings,
            None,
            self._recorder,
            self._link.administer,
            outside,
            remote=self._link,
            ask=self._link.ask,
            worker=number,
            byte_cells=_cells(Path(socket_path), number),
            held_beginnings=_held_beginnings(Path(socket_path), number),
        )
        self._connections = self._traffic.shared.connection_quotas
        self._connections.on_change = self._count_connections_soon
        self._token_owners = self._traffic.shared.token_owners
        self._token_owners.on_learnt = self._link.token_owners
        self._background: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()
        self._is_draining = False
        self._reported_ms = 0
        self._unreported: list[User] = []
        self._is_new_owner = True

    async def start(self) -> None:
        """Listen on the ports of all workers. Raises CannotListen."""
        loop = self._traffic.shared.loop
        self._background.append(loop.create_task(begun_anew("state owner", self._link.run)))
        await self._traffic.start()
        self._background.append(loop.create_task(begun_anew("reports", self._report_for_ever)))

    async def until_stopped(self) -> None:
        """Return when a drain has ended."""
        await self._stopped.wait()

    async def drain(self) -> None:
        """End the traffic (see Traffic.drain), then send the last report and events."""
        if self._is_draining:
            return
        self._is_draining = True
        self._report()  # /readyz says so from now on, and not only when the last answer has come
        loop = self._traffic.shared.loop
        began = loop.time()
        try:
            cut = await self._traffic.drain()
            for task in self._background:
                task.cancel()
            self._report()
            while self._unreported:
                self._report()
            log.info(Event.STOPPED, connections_cut=cut, seconds=round(loop.time() - began, 3))
        finally:
            await self._link.close(wire.LAST_EVENTS_S)
            self._stopped.set()

    def reload(self) -> None:
        """Do nothing: the state owner reads the file, and sends the quotas to all workers."""

    # ---- StateListener ---------------------------------------------------------------------------------

    def connected(self) -> None:
        self._is_new_owner = True
        self._connections.begin_anew()
        self._count_connections()
        self._link.watched(self._traffic.watched_ids())
        self._link.token_owners(self._token_owners.known_tokens())
        self._reported_ms, self._unreported = 0, []
        self._traffic.byte_quota.report_all()
        self._report()

    def failed_open(self, question: Question, now_ms: int) -> Answer:
        return self._traffic.failed_open(question, now_ms)

    def quotas_changed(self, quotas: Quotas, version: int) -> None:
        # A new state owner may not know what the connections' caches do: all ask anew, whatever the quotas are.
        if self._is_new_owner or quotas != self._traffic.quotas:
            self._is_new_owner = False
            self._traffic.set_quotas(quotas)
        if self._recorder is not None:
            self._recorder.quotas, self._recorder.quota_version = quotas, version

    def refused_elsewhere(self, user: User, producer_id: int) -> None:
        self._traffic.refused_elsewhere(user, producer_id, self._traffic.shared.now_ms())

    def connections_elsewhere(self, counts: Counts) -> None:
        self._traffic.connections_elsewhere(counts)

    def token_owners_elsewhere(self, tokens: Sequence[TokenOwner]) -> None:
        self._token_owners.take_shared(tokens)

    def topic_id_learnt(self, topic_id: bytes) -> None:
        self._traffic.learn_topic_id(topic_id)

    # ---- reports ---------------------------------------------------------------------------------------

    async def _report_for_ever(self) -> None:
        while True:
            self._report()
            await asyncio.sleep(REPORT_S)

    def _count_connections_soon(self) -> None:
        self._traffic.shared.loop.call_later(CONNECTIONS_S, self._count_connections)

    def _count_connections(self) -> None:
        changed = self._connections.changes()
        if changed and self._link.connections(changed):
            self._connections.changes_sent()

    def _report(self) -> None:
        self._count_connections()  # what could not be sent before
        traffic, now_ms = self._traffic, self._traffic.shared.now_ms()
        if self._recorder is not None:
            traffic.counters.events_unrecorded = self._recorder.unrecorded + self._link.events.dropped
        self._link.report(
            report_of(
                traffic.counters,
                traffic.users(self._next_users(now_ms)),
                byte_changes_of(traffic.byte_quota, now_ms),
                is_reached=traffic.is_reached and not self._is_draining,
                failure="the gateway drains" if self._is_draining else traffic.failure,
                is_draining=self._is_draining,
            )
        )

    def _next_users(self, now_ms: int) -> list[User]:
        """Return the next of those of whom something was counted since the round before."""
        if not self._unreported:
            # Rates go on falling for two samples after the last count.
            since_ms = self._reported_ms - 2 * SAMPLE_MS - int(2000 * REPORT_S)
            self._reported_ms = now_ms
            self._unreported = self._traffic.counted_users(since_ms)
        users, self._unreported = self._unreported[:REPORTED_USERS], self._unreported[REPORTED_USERS:]
        return users


def _cells(socket_path: Path, number: int) -> ByteCells | None:
    """Return what all workers map, made by the supervisor; None: without it each counts for itself."""
    try:
        return ByteCells(cells_path(socket_path), number)
    except (OSError, NotTheFile) as error:
        log.error(Event.BYTE_CELLS_MISSING, worker=number, reason=str(error))
        return None


def _held_beginnings(socket_path: Path, number: int) -> HeldBeginnings:
    """Return the notes that all workers map, made by the supervisor; without the file, notes of its own."""
    try:
        return held_notes.shared(held_notes.notes_path(socket_path))
    except OSError as error:
        log.error(Event.HELD_NOTES_MISSING, worker=number, reason=str(error))
        return held_notes.private()
