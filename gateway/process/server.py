"""The gateway in one process: its traffic, its quota, its admin site, and how they start and end."""

from __future__ import annotations

import asyncio
from functools import cached_property
from pathlib import Path

from prometheus_client import CollectorRegistry

from pidgate.gateway.clock import monotonic_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.metrics.reports import byte_state_of
from pidgate.gateway.process.traffic import Traffic
from pidgate.gateway.quotas.administering import Administering
from pidgate.gateway.quotas.administration import InForce
from pidgate.gateway.quotas.reloading import Reloading
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.gateway.recording.setup import recorder_of
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.quota.admission import Admission
from pidgate.version import version

log = logger()


class Gateway:
    """One gateway process. `start`, then `until_stopped`; `drain` from a signal handler's task ends it.

    `file`: where the settings are from, if they are from one.
    """

    def __init__(self, settings: Settings, file: Path | None = None) -> None:
        self._settings = settings
        now_ms = monotonic_ms(asyncio.get_running_loop())()
        self._keeper = QuotaStateManager(settings)
        self._admission = Admission(
            settings.to_quotas(), self._keeper.random_seed, now_ms, state=self._keeper.state
        )
        self._keeper.recorder = recorder = recorder_of(
            settings,
            self._keeper.publish,
            self._keeper.run,
            applied_offsets=lambda: self._keeper.applied_offsets,
            applied_ranges=self._keeper.heard.take,
        )
        self._keeper.on_state = self._admission.use_state
        self._keeper.on_refused_elsewhere = self._admission.refused_elsewhere
        self.traffic = Traffic(settings, self._admission, Counters(), recorder)
        self._keeper.on_topic_id = self.traffic.shared.gateway_topics.learn_id
        self._keeper.is_reached = lambda: self.traffic.is_reached
        self.administration = book = QuotaStore(settings)
        book.on_change = self._quotas_changed
        book.on_command = self._keeper.apply
        book.on_topic_id = self.traffic.shared.gateway_topics.learn_id
        self._reloading = Reloading(
            file, settings, book, lambda: self._admission.user_snapshots(self.traffic.shared.now_ms())
        )
        self.traffic.shared.administer = Administering(book).administer
        self._stopped = asyncio.Event()
        self._is_draining = False

    async def start(self) -> None:
        """Listen, then reach for the cluster and for what is remembered. Raises CannotListen, StateDirInUse."""
        self._keeper.open()
        self.administration.open()
        await self.traffic.start()
        # Imported only now: the HTTP library takes longer to load than everything that has to listen first.
        from pidgate.gateway.admin import site
        from pidgate.gateway.admin.quotas_api import QuotasApi

        quotas = QuotasApi(
            self._settings,
            self.administration,
            lambda: self._keeper.state,
            self.traffic.shared.now_ms,
            sticky_entries=self._admission.sticky.entries_of,
        )
        self._admin = await site.start(self._settings.admin.bind, self, quotas)
        self._keeper.start()
        self.administration.start()
        self._reloading.start()

    async def until_stopped(self) -> None:
        """Returns when a drain has ended."""
        await self._stopped.wait()

    async def drain(self) -> None:
        """End the traffic, then tell the topic and keep the state; see Traffic.drain."""
        if self._is_draining:
            return
        self._is_draining = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._reloading.stop()
        cut = await self.traffic.drain()
        await self.administration.stop()
        await self._keeper.stop()
        await self._admin.close()
        log.info(Event.STOPPED, connections_cut=cut, seconds=round(loop.time() - began, 3))
        self._stopped.set()

    def reload(self) -> None:
        """SIGHUP came: the file is read again."""
        self._reloading.reload()

    def _quotas_changed(self, in_force: InForce) -> None:
        self._keeper.set_quotas(in_force.quotas, in_force.provenance)
        self.traffic.set_quotas(in_force.quotas)

    # ---- what the admin site asks ----------------------------------------------------------------------

    def is_ready(self) -> bool:
        """The cluster was reached once, what is remembered is restored, and the gateway is not draining."""
        return self.traffic.is_reached and self._keeper.is_restored and not self._is_draining

    def not_ready_reason(self) -> str:
        """Why not, for /readyz."""
        if self._is_draining:
            return "the gateway drains"
        return self.traffic.probe.last_failure if not self.traffic.is_reached else self._keeper.progress

    @cached_property
    def registry(self) -> CollectorRegistry:
        """Everything that /metrics shows."""
        from pidgate.gateway.metrics.byte_rates import ByteCollector
        from pidgate.gateway.metrics.quota_store import BookCollector
        from pidgate.gateway.metrics.registry import build_registry
        from pidgate.gateway.metrics.reloading import ReloadCollector
        from pidgate.gateway.metrics.state import KeeperCollector

        return build_registry(
            self.traffic.counters,
            lambda: self._admission.user_snapshots(self.traffic.shared.now_ms()),
            self.is_ready,
            version(),
            KeeperCollector(self._keeper),
            ReloadCollector(self._reloading),
            BookCollector(self.administration),
            ByteCollector(lambda: byte_state_of(self.traffic.byte_quota, self.traffic.shared.now_ms())),
        )
