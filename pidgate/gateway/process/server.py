"""The gateway: composition of its traffic, quota state, quotas and admin site, and their start and end."""

from __future__ import annotations

import asyncio
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pidgate.gateway.clock import monotonic_ms, wall_ms
from pidgate.gateway.config.loading import Overrides
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, begun_anew, guarded, logger
from pidgate.gateway.metrics.otlp import OtlpExport, is_wanted
from pidgate.gateway.present.fleet_answers import FleetAnswers
from pidgate.gateway.present.own_answer import OwnAnswers
from pidgate.gateway.present.present import Present
from pidgate.gateway.process.outside import Outside
from pidgate.gateway.process.traffic import Traffic
from pidgate.gateway.quotas.administration import InForce
from pidgate.gateway.quotas.fusing import Fusing
from pidgate.gateway.quotas.reloading import Reloading
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.gateway.recording.setup import recorder_of
from pidgate.gateway.state.event_log import EventLog
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.quota.changes import Command
from pidgate.quota.entities import User
from pidgate.version import version

if TYPE_CHECKING:
    from pidgate.gateway.metrics.registry import MetricsRegistry

log = logger()

QUOTAS_PATIENCE_S: Final = 5.0
"""Longest wait of the state for the quotas topic, once the cluster is reached."""
_LOOK_S: Final = 0.02


class Gateway:
    """`start`, then `until_stopped`; `drain` from a signal handler's task ends it.

    `file`: the file of the settings, if they come from one; `overrides`: options in place of its values.
    `incarnation`: of this run. `outside`: the machine.
    """

    def __init__(
        self,
        settings: Settings,
        file: Path | None = None,
        *,
        overrides: Overrides = MappingProxyType({}),
        incarnation: str = "",
        outside: Outside | None = None,
    ) -> None:
        self._settings = settings
        self._outside = outside = outside or Outside()
        self._now_ms = monotonic_ms(asyncio.get_running_loop())
        incarnation = incarnation or outside.name()
        kafka = outside.own_client(settings)
        events = EventLog(settings, kafka, self.topic_id_learnt)
        recorder = recorder_of(settings, events.publish, lambda: events.applied_offsets, incarnation)
        self._id_blocks = recorder.id_blocks
        events.on_expiration = recorder.expiration_learnt
        self._quotas = QuotaStore(settings, self, kafka, outside.name(), wall_ms)
        self._manager = QuotaStateManager(
            settings,
            self._quotas.in_force.provenance,
            events,
            recorder,
            self,
            incarnation,
            outside.filter_secret,
        )
        administer = self._quotas.administer
        self.traffic = Traffic(settings, self._manager.state, recorder, administer, outside)
        self._fusing = Fusing(self._quotas, self._manager.state, self._now_ms, wall_ms)
        self._reloading = Reloading(
            file,
            settings,
            lambda: self._quotas.in_force.quotas,
            self._quotas.file_changed,
            self.traffic.users,
            overrides,
        )
        self._present = Present(
            settings,
            self.traffic.shared,
            self._quotas,
            self._manager,
            self._reloading,
            self.traffic.limits,
            self.traffic.slowness,
            lambda: "" if self.is_ready() else self.not_ready_reason(),
        )
        self._fleet_answers = FleetAnswers(self._present, settings.events.redact)
        self._manager.on_fleet_event = self._fleet_answers.handle_event
        self.traffic.shared.tell_user = OwnAnswers(self._present, settings.gateway_id).tell
        self._otlp: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._is_draining = False

    async def start(self) -> None:
        """Listen, then reach for the cluster and for what is remembered. Raises CannotListen, CannotStart."""
        self._manager.open()
        self._quotas.open()
        # Before the ports: a gateway that shares them gets connections as soon as it listens.
        self._close_admin = await self._outside.open_admin(self._settings, self, self._present)
        try:
            await self.traffic.start()
        except BaseException:
            await self._close_admin()
            raise
        self._manager.start()
        self._quotas.start()
        self._reloading.start()
        self._fusing.start()
        if is_wanted():
            resource = {
                "service.name": "pidgate",
                "service.instance.id": self._settings.gateway_id,
                "service.version": version(),
            }
            export = OtlpExport(self.registry, resource)
            self._otlp = asyncio.get_running_loop().create_task(begun_anew("OTLP export", export.run))

    async def until_stopped(self) -> None:
        """Return when a drain has ended."""
        await self._stopped.wait()

    async def drain(self) -> None:
        """End the traffic (see Traffic.drain), publish the last events and save the state."""
        if self._is_draining:
            return
        self._is_draining = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        cut: int | None = None

        async def end_traffic() -> None:
            nonlocal cut
            cut = await self.traffic.drain()

        # Each whatever becomes of those before it: what is remembered is saved, and the process ends.
        for what, end in (
            ("configuration", self._reloading.stop),
            ("traffic", end_traffic),
            ("fuse", self._fusing.stop),
            ("quotas", self._quotas.stop),
            ("state", self._manager.stop),
            ("admin", self._close_admin),
        ):
            await guarded(f"stop of {what}", end())
        if self._otlp is not None:
            self._otlp.cancel()
        if cut is not None:
            log.info(Event.STOPPED, connections_cut=cut, seconds=round(loop.time() - began, 3))
        self._stopped.set()

    def reload(self) -> None:
        """Read the file again, on SIGHUP."""
        self._reloading.reload()

    # ---- QuotaObserver and StateObserver ---------------------------------------------------------------

    def quotas_changed(self, in_force: InForce) -> None:
        self.traffic.set_quotas(in_force.quotas)
        self._manager.quotas_changed(in_force.provenance)

    def command_given(self, command: Command) -> None:
        self._manager.apply(command)

    def topic_id_learnt(self, topic_id: bytes) -> None:
        self.traffic.learn_topic_id(topic_id)

    async def quotas_read(self) -> None:
        waited_s = 0.0
        while not self._quotas.is_read and waited_s < QUOTAS_PATIENCE_S:
            await asyncio.sleep(_LOOK_S)
            waited_s += _LOOK_S if self.is_reached else 0.0

    def refused_elsewhere(self, user: User, producer_id: int, now_ms: int) -> None:
        self.traffic.refused_elsewhere(user, producer_id, now_ms)

    @property
    def is_reached(self) -> bool:
        return self.traffic.is_reached

    # ---- GatewayView, for the admin site ---------------------------------------------------------------

    def is_ready(self) -> bool:
        """Return whether a broker answers, the state is restored, and the gateway is not draining."""
        return self.traffic.is_reached and self._manager.is_restored and not self._is_draining

    def not_ready_reason(self) -> str:
        """Return why `is_ready` is false, for /readyz."""
        if self._is_draining:
            return "the gateway drains"
        return self._manager.progress if self.traffic.is_reached else self.traffic.failure

    async def ask_fleet(self) -> dict[str, Any]:
        return await self._fleet_answers.ask()

    def _registry(self, labelled_rows: int) -> MetricsRegistry:
        from prometheus_client import ProcessCollector

        from pidgate.gateway.metrics.byte_rates import ByteCollector
        from pidgate.gateway.metrics.collectors import QuotaStoreCollector, ReloadCollector, StateCollector
        from pidgate.gateway.metrics.registry import GatewayCollector, MetricsRegistry

        traffic = self.traffic
        return MetricsRegistry(
            GatewayCollector(traffic.counters, traffic.users, self.is_ready, version(), labelled_rows),
            StateCollector(self._manager, self._id_blocks, self._now_ms),
            ReloadCollector(self._reloading),
            QuotaStoreCollector(self._quotas),
            ByteCollector(traffic.byte_quota, self._now_ms, labelled_rows),
            ProcessCollector(registry=None),
            on_refresh=self._count_lanes,
        )

    @cached_property
    def registry(self) -> MetricsRegistry:
        from pidgate.gateway.metrics.families import LABELLED_ROWS

        return self._registry(LABELLED_ROWS)

    @cached_property
    def overview_registry(self) -> MetricsRegistry:
        return self._registry(0)

    def _count_lanes(self) -> None:
        self.traffic.count_lanes(self.traffic.shared.now_ms())
