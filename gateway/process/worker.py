"""A worker: the traffic of some of the gateway's connections, in a process of its own."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from pidgate.gateway.clock import monotonic_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.metrics.reports import byte_changes_of, report_of
from pidgate.gateway.process.byte_cells import ByteCells, NotTheFile, cells_path
from pidgate.gateway.process.link import RemoteState, StateOwnerLink
from pidgate.gateway.process.traffic import Traffic
from pidgate.gateway.recording.setup import recorder_of
from pidgate.quota.admission import Admission
from pidgate.quota.counters import SAMPLE_MS
from pidgate.quota.producer_ids import Answer, Question
from pidgate.quota.settings import Quotas

log = logger()

REPORT_S = 1.0
LAST_WORDS_S = 1.0
"""How long the holder may take to read a worker's last events."""


class Worker:
    """`start`, then `until_stopped`; `drain` ends it."""

    def __init__(self, settings: Settings, number: int, socket_path: str, incarnation: str) -> None:
        now_ms = monotonic_ms(asyncio.get_running_loop())()
        self._link = StateOwnerLink(socket_path, number, self._failed_open)
        self._admission = Admission(
            settings.to_quotas(), lambda: secrets.randbits(32), now_ms, state=RemoteState(self._link)
        )
        recorder = recorder_of(
            settings,
            self._link.publish,
            incarnation,
            worker=number,
            applied_offsets=lambda: self._link.applied_offsets,
        )
        if recorder is not None:
            recorder.quota_version = 1  # of the quotas that the holder started with
        self._traffic = Traffic(
            settings,
            self._admission,
            Counters(),
            recorder,
            worker=number,
            byte_cells=_cells(Path(socket_path), number),
        )
        self._recorder = recorder
        self._traffic.shared.ask = self._link.ask
        self._traffic.shared.administer = self._link.administer
        self._link.on_quotas = self._quotas_changed
        self._link.on_topic_id = self._traffic.shared.gateway_topics.learn_id
        self._link.on_refused_elsewhere = lambda user, producer_id: self._admission.refused_elsewhere(
            user, producer_id, self._traffic.shared.now_ms()
        )
        self._link.on_connected = self._say_everything
        self._background: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()
        self._reported_ms = 0

    async def start(self) -> None:
        """Listen on the ports of all workers. Raises CannotListen."""
        loop = self._traffic.shared.loop
        self._background.append(loop.create_task(self._link.run()))
        await self._traffic.start()
        self._background.append(loop.create_task(self._report()))

    async def until_stopped(self) -> None:
        await self._stopped.wait()

    async def drain(self) -> None:
        """See Traffic.drain; then the holder gets the last words."""
        if self._traffic.is_draining:
            return
        began = self._traffic.shared.loop.time()
        cut = await self._traffic.drain()
        for task in self._background:
            task.cancel()
        self._say_what_was_counted()
        await self._link.close(LAST_WORDS_S)
        log.info(
            Event.STOPPED, connections_cut=cut, seconds=round(self._traffic.shared.loop.time() - began, 3)
        )
        self._stopped.set()

    def reload(self) -> None:
        """The holder reads the file, and tells all workers."""

    def _quotas_changed(self, quotas: Quotas, version: int) -> None:
        """Told at each connection: a holder that was started again may have forgotten what is cached here."""
        if quotas != self._admission.quotas:
            self._traffic.set_quotas(quotas)
        if self._recorder is not None:
            self._recorder.quotas, self._recorder.quota_version = quotas, version

    def _failed_open(self, question: Question, now_ms: int) -> Answer:
        self._admission.failures += 1
        return self._admission.failed_open(question, now_ms)

    async def _report(self) -> None:
        while True:
            self._say_what_was_counted()
            await asyncio.sleep(REPORT_S)

    def _say_everything(self) -> None:
        """To a holder that is new, or may be."""
        self._reported_ms = 0
        self._traffic.byte_quota.tell_all()
        self._say_what_was_counted()

    def _say_what_was_counted(self) -> None:
        traffic, now_ms = self._traffic, self._traffic.shared.now_ms()
        # Rates go on falling for two samples after the last count.
        since_ms = self._reported_ms - 2 * SAMPLE_MS - int(2000 * REPORT_S)
        users = self._admission.user_snapshots(now_ms, counted_since_ms=since_ms)
        self._reported_ms = now_ms
        self._link.report(
            report_of(
                traffic.counters,
                users,
                byte_changes_of(traffic.byte_quota, now_ms),
                is_reached=traffic.is_reached,
                failure=traffic.probe.last_failure,
            )
        )


def _cells(socket_path: Path, number: int) -> ByteCells | None:
    """What all workers of the gateway map; the supervisor has made it. Without it each counts for itself."""
    try:
        return ByteCells(cells_path(socket_path), number)
    except (OSError, NotTheFile) as error:
        log.error(Event.BYTE_CELLS_MISSING, worker=number, reason=str(error))
        return None
