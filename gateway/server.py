"""The gateway as a whole: listeners, one quota, the admin site, the once-a-second work, the drain."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from functools import cached_property
from importlib.metadata import version

from prometheus_client import CollectorRegistry

from gateway.buffers import BufferBudget
from gateway.connection import Shared
from gateway.counters import Counters
from gateway.listeners import Listener
from gateway.logs import Event, logger
from gateway.nodes import Nodes
from gateway.probe import Probe
from gateway.settings import Settings
from quota.admission import Admission

log = logger()

TICK_S = 1.0
CUT_OFF_S = 1.0
"""How long sockets that were cut off may take to say so."""
STALL_S = 0.1
"""A tick that comes later than this is a stall: a request that arrived meanwhile waited as long."""


class Gateway:
    """One gateway process. `start`, then `until_stopped`; `drain` from a signal handler's task ends it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        loop = asyncio.get_running_loop()
        self._counters = Counters()
        self._nodes = Nodes(settings.cluster.bootstrap_servers)
        self._nodes.on_new_node = self._node_learnt
        self._nodes.on_address = self._node_found
        self._admission = Admission(
            settings.to_quotas(), lambda: secrets.randbits(32), int(loop.time() * 1000)
        )
        limits = settings.limits
        self._budget = BufferBudget(limits.buffered_total_bytes)
        self._shared = Shared(
            loop=loop,
            admission=self._admission,
            nodes=self._nodes,
            counters=self._counters,
            budget=self._budget,
            frame_limit_bytes=limits.frame_bytes,
            connect_timeout_ms=limits.connect_timeout_ms,
            help_url=settings.quotas.help_url,
        )
        self._listeners = [Listener(listener, self._shared) for listener in settings.listeners]
        self._probe = Probe(self._nodes, limits.connect_timeout_ms)
        self._background: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()
        self._is_draining = False

    async def start(self) -> None:
        """Listen, then reach for the cluster. Raises CannotListen."""
        for listener in self._listeners:
            await listener.open()
        # Imported only now: the HTTP library takes longer to load than everything that has to listen first.
        from gateway.admin import site

        self._admin = await site.start(self._settings.admin.bind, self)
        loop = self._shared.loop
        self._background = [loop.create_task(self._probe.run()), loop.create_task(self._tick())]

    async def until_stopped(self) -> None:
        """Returns when a drain has ended."""
        await self._stopped.wait()

    async def drain(self) -> None:
        """Accept nothing new, let what is in flight be answered, close; at most `drain_timeout` long.

        Mutes are not waited for: what is held behind one was never forwarded, and its client sends it again.
        """
        if self._is_draining:
            return
        self._is_draining = True
        loop = self._shared.loop
        began = loop.time()
        timeout_ms = self._settings.drain_timeout_ms
        channels = self._shared.channels
        log.info(Event.DRAINING, cause="signal", connections=len(channels), drain_timeout_ms=timeout_ms)
        for listener in self._listeners:
            listener.close()
        for channel in list(channels):
            channel.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._shared.all_closed.wait()
        cut = len(channels)
        for channel in list(channels):
            channel.close("drain", "the drain timeout has passed")
        # Not closed but cut off: whoever reads nothing would keep the event loop from ending.
        for transport in list(self._shared.transports):
            transport.abort()
        for task in [*self._background, *self._shared.connecting]:
            task.cancel()
        await self._admin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CUT_OFF_S):
                await self._shared.all_closed.wait()
        log.info(Event.STOPPED, connections_cut=cut, seconds=round(loop.time() - began, 3))
        self._stopped.set()

    # ---- what the admin site asks ----------------------------------------------------------------------

    def is_ready(self) -> bool:
        """The cluster was reached once, and the gateway is not draining."""
        return self._probe.reached.is_set() and not self._is_draining

    def not_ready_reason(self) -> str:
        """Why not, for /readyz."""
        return "the gateway drains" if self._is_draining else self._probe.last_failure

    @cached_property
    def registry(self) -> CollectorRegistry:
        """Everything that /metrics shows."""
        from gateway.metrics import build_registry

        return build_registry(
            self._counters,
            users=lambda: self._admission.user_snapshots(self._shared.now_ms()),
            is_ready=self.is_ready,
            version=version("pidgate"),
        )

    # ---- inside ----------------------------------------------------------------------------------------

    def _node_learnt(self, node_id: int) -> None:
        host, port = self._nodes.known[node_id]
        log.info(Event.NODE_LEARNT, node_id=node_id, server=f"{host}:{port}")
        for listener in self._listeners:
            listener.node_learnt(node_id)

    def _node_found(self, node_id: int) -> None:
        # Not at once: the answer that tells the address has to leave first.
        self._shared.loop.call_soon(self._close_misled, node_id)

    def _close_misled(self, node_id: int) -> None:
        """Close what came for this node and was connected elsewhere: to a stand-in, or where the node was.

        Whoever is there is not the leader of this node's partitions, and no client would ever leave it for
        that: by its Metadata this connection is the right one.
        """
        address = self._nodes.known.get(node_id)
        for channel in list(self._shared.channels):
            if channel.context.node_id == node_id and channel.server not in (None, address):
                channel.close("moved", "its broker is elsewhere")

    async def _tick(self) -> None:
        """Once a second: forget idle users and ids that gave up, close idle connections."""
        loop = self._shared.loop
        counters = self._counters
        while True:
            due_s = loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            late_s = loop.time() - due_s
            if late_s > STALL_S:
                counters.stalls += 1
                counters.stalled_seconds += late_s
                log.warning(Event.EVENT_LOOP_STALLED, stalled_ms=round(late_s * 1000))
            for work in (self._sweep_quota, self._check_connections, self._open_missing_ports):
                try:
                    work(self._shared.now_ms())
                except Exception as error:
                    # The next second tries again: without this work nothing idle is ever closed or forgotten.
                    log.exception(Event.UNEXPECTED_ERROR, reason=f"once-a-second work: {error}")

    def _sweep_quota(self, now_ms: int) -> None:
        counters = self._counters
        if self._admission.failures > counters.quota_failed_open:
            counters.quota_failed_open = self._admission.failures
            log.error(
                Event.QUOTA_FAILED_OPEN, reason="the quota code raised an error; requests were let through"
            )
        self._admission.sweep(now_ms)

    def _check_connections(self, now_ms: int) -> None:
        self._counters.buffered_bytes = self._budget.used_bytes
        idle_ms = self._settings.limits.idle_ms
        muted = 0
        for channel in list(self._shared.channels):
            muted += channel.conversation.muted_until_ms > now_ms
            channel.check_age(now_ms, idle_ms)
        self._counters.muted_connections = muted

    def _open_missing_ports(self, _now_ms: int) -> None:
        for listener in self._listeners:
            listener.open_missing()
