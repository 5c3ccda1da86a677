"""The connections of the gateway: listeners, admission, the way to the brokers, the once-a-second work."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from pidgate.gateway.clock import monotonic_ms, next_tick
from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.cluster.nodes import MOST_NODES, Nodes
from pidgate.gateway.cluster.own_questions import OwnQuestions
from pidgate.gateway.cluster.probe import Probe
from pidgate.gateway.cluster.resolving import Resolver
from pidgate.gateway.cluster.token_lookup import TokenLookup
from pidgate.gateway.cluster.upstream_identity import identity_of
from pidgate.gateway.config.settings import LimitsSettings, ListenerSettings, Settings
from pidgate.gateway.logs import Event, begun_anew, logger
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.metrics.lateness import LatenessWatch
from pidgate.gateway.metrics.open_files import OpenFilesWatch
from pidgate.gateway.present.limits import LimitWatch
from pidgate.gateway.present.slowness import Slowness
from pidgate.gateway.process.kept_nodes import KeptNodes
from pidgate.gateway.process.outside import Outside
from pidgate.gateway.proxy.bounds import Bounds
from pidgate.gateway.proxy.buffers import BufferBudget
from pidgate.gateway.proxy.connection import Shared
from pidgate.gateway.proxy.connection_age import AgeLimits
from pidgate.gateway.proxy.connection_quotas import ConnectionLimits
from pidgate.gateway.proxy.listeners import Listener
from pidgate.gateway.quotas.administration import Administer
from pidgate.gateway.quotas.announcing import log_login_warnings
from pidgate.gateway.recording.recorder import Recorder
from pidgate.gateway.tls.live import LiveContext, follow
from pidgate.protocol import codec
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteQuota
from pidgate.quota.counters import UserSnapshot
from pidgate.quota.entities import User
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Quotas

log = logger()

CHECKED_PER_TURN: Final = 2_000
"""Connections: some 2 ms."""
BYTES_SWEPT_EVERY_MS: Final = 60_000
MANY_OPEN_FILES: Final = 200_000
OWN_OPEN_FILES: Final = 512
"""Of the process itself: bootstrap ports, the admin site (visits.py), the gateway's own clients, files."""
FILES_OF_PORT: Final = 2
"""Descriptors of a node's port: its socket and the duplicate that accepts."""
CUT_OFF_S: Final = 1.0
"""Time for sockets that were cut off to close."""


class Traffic:
    """All connections: `start`, then `drain` once."""

    def __init__(
        self,
        settings: Settings,
        state: ProducerIdQuota,
        recorder: Recorder | None,
        administer: Administer,
        outside: Outside,
    ) -> None:
        loop = asyncio.get_running_loop()
        quotas, now_ms = settings.to_quotas(), monotonic_ms(loop)()
        self._settings = settings
        self._outside_bind, self._locks = outside.bind, outside.port_locks()
        self._admission = admission = Admission(quotas, outside.filter_secret, now_ms, state=state)
        self.counters = counters = Counters()
        self._recorder = recorder
        limits, self._bounds = settings.limits, (bounds := outside.bounds)
        most_nodes, ports = _most_nodes(settings)
        self.nodes = Nodes(
            settings.cluster.bootstrap_servers, most=most_nodes, resolver=Resolver(outside.look_up)
        )
        self._moved: set[int] = set()
        """Nodes with a new address, until their connections are looked through."""
        self.nodes.on_new_node = self._node_learnt
        self.nodes.on_address = self._node_found
        self.byte_quota = ByteQuota(state.in_force)
        self._budget = BufferBudget(limits.buffered_total_bytes)
        cluster_tls = settings.cluster.tls
        upstream_tls = None if cluster_tls is None else LiveContext.of_cluster(cluster_tls)
        brokers = _own_questions(settings, outside, self.nodes, upstream_tls)
        self.shared = Shared(
            loop=loop,
            admission=admission,
            nodes=self.nodes,
            counters=counters,
            budget=self._budget,
            frame_limit_bytes=limits.frame_bytes,
            connect_timeout_ms=bounds.connect_timeout_ms,
            gateway_topics=GatewayTopics(
                [settings.events.topic, settings.events.quotas_topic] if settings.events.enabled else []
            ),
            byte_quota=self.byte_quota,
            connection_limits=_connection_limits(limits, bounds, settings.listeners, ports),
            upstream_tls=upstream_tls,
            upstream_identity=identity_of(settings, outside.nonce, brokers, monotonic_ms(loop)),
            sends_proxy_header=settings.cluster.proxy_protocol,
            lane_extension=outside.lane_extension(),
        )
        if brokers is not None:
            self.shared.token_lookup = TokenLookup(self.shared.token_owners, brokers, monotonic_ms(loop))
        self.limits = LimitWatch(settings, self.shared)
        self.slowness = Slowness(counters)
        self.shared.recorder = recorder
        self.shared.administer = administer
        if recorder is not None:
            recorder.topic_name = admission.sticky.topics.canonical
            recorder.on_pair = state.note_pair
        tls_of = [
            None if listener.tls is None else LiveContext.of_server(listener.tls, ("listeners", index, "tls"))
            for index, listener in enumerate(settings.listeners)
        ]
        self._listeners = [
            Listener(
                listener,
                self.shared,
                self._bind,
                shares_ports=settings.reuse_port,
                tls=tls,
                tls_handshake_ms=bounds.tls_handshake_ms,
            )
            for listener, tls in zip(settings.listeners, tls_of, strict=True)
        ]
        self._contexts = [tls for tls in (upstream_tls, *tls_of) if tls is not None]
        authentication = self.shared.authentication
        self.probe = Probe(
            self.nodes,
            self.shared.broker_answers,
            self.shared.gateway_topics,
            authentication,
            up=counters.broker_up,
            answer_s=counters.broker_answer_s,
            own=brokers,
            check_every_ms=bounds.broker_check_ms,
        )
        self._kept_nodes = KeptNodes(settings.state_dir, self.nodes) if settings.state_dir else None
        if self._kept_nodes is not None:
            self.nodes.on_dropped = self._kept_nodes.changed
        authentication.on_learnt = self._authentication_learnt
        self._open_files = OpenFilesWatch(counters)
        self._tasks = outside.tasks
        self._lateness = LatenessWatch(self.shared.loop, counters, outside.without_core_s)
        self._bytes_swept_ms = self.shared.now_ms()
        self._background: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen, then reach for the cluster. Raises CannotListen."""
        if self.shared.gateway_topics.names or self.shared.upstream_identity is not None:
            codec.load()
        self.shared.lanes.start(self._settings.lanes, self._admission.grants)
        for listener in self._listeners:
            await listener.open()
        if self._kept_nodes is not None:
            self._kept_nodes.restore()
        loop = self.shared.loop
        self._lateness.start()
        self._background = [
            loop.create_task(begun_anew("probe", self.probe.run)),
            loop.create_task(begun_anew("once-a-second work", self._tick)),
            loop.create_task(begun_anew("tls", partial(follow, self._contexts))),
        ]

    def _authentication_learnt(self, mechanisms: Sequence[str]) -> None:
        log_login_warnings(self._settings, self.quotas, mechanisms)
        self.shared.authentication_learnt()

    # ---- for the gateway -------------------------------------------------------------------------------

    def set_quotas(self, quotas: Quotas) -> None:
        """Put the quotas in force, for all that read them."""
        now_ms = self.shared.now_ms()
        self._admission.set_quotas(quotas, now_ms)
        self.byte_quota.follow_quotas(now_ms)
        self.shared.byte_waits.follow_quotas()

    @property
    def quotas(self) -> Quotas:
        """Those in force."""
        return self._admission.quotas

    @property
    def is_reached(self) -> bool:
        return self.probe.reached.is_set()

    @property
    def failure(self) -> str:
        return self.probe.last_failure

    def users(self) -> Iterator[UserSnapshot]:
        self.shared.turns.count_bytes()
        return self._admission.user_snapshots(self.shared.now_ms())

    def refused_elsewhere(self, user: User, producer_id: int, now_ms: int) -> None:
        self._admission.sticky.watch_refused_elsewhere(user, producer_id, now_ms)

    def learn_topic_id(self, topic_id: bytes) -> None:
        self.shared.gateway_topics.learn_id(topic_id)

    # ---- the end ---------------------------------------------------------------------------------------

    async def drain(self) -> int:
        """Empty the ports' backlogs, close the ports, let what is in flight be answered; at most `drain_timeout` long.

        Mutes are not waited for: what is held behind one was never forwarded, and its client sends it again.
        Return how many connections had to be cut.
        """
        timeout_ms = self._settings.drain_timeout_ms
        connections = self.shared.connections
        log.info(Event.DRAINING, cause="signal", connections=len(connections), drain_timeout_ms=timeout_ms)
        give_up_s = self.shared.loop.time() + timeout_ms / 1000
        await self.shared.accepting.empty()
        for listener in self._listeners:
            listener.close()
        self._locks.release()
        for connection in list(connections):
            connection.close("drain", "the gateway drains")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(give_up_s):
                await self.shared.all_closed.wait()
        cut = len(connections)
        for connection in list(connections):
            connection.close_now("drain", "the drain timeout has passed")
        # Aborted, not closed: a peer that reads nothing would keep the event loop from ending.
        for transport in list(self.shared.transports):
            transport.abort()
        for task in [*self._background, *self.shared.connecting]:
            task.cancel()
        self.shared.broker_answers.stop()
        if self.shared.token_lookup is not None:
            self.shared.token_lookup.stop()
        self._lateness.stop()
        if self._kept_nodes is not None:
            await self._kept_nodes.close()
        while self._recorder is not None and self._recorder.flush():  # noqa: ASYNC110 - it counts nothing meanwhile
            await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CUT_OFF_S):
                await self.shared.all_closed.wait()
        self.shared.lanes.stop()
        return cut

    # ---- inside ----------------------------------------------------------------------------------------

    def _bind(self, host: str, port: int, shares_port: bool) -> socket.socket:
        """Listen; a shared port is locked for gateways of this fleet. Raises OSError, CannotStart."""
        settings = self._settings
        if shares_port and port:
            servers = sorted(str(server) for server in settings.cluster.bootstrap_servers)
            fleet = {"events.topic": settings.events.topic, "cluster.bootstrap_servers": servers}
            self._locks.hold([port], fleet)
        return self._outside_bind(host, port, shares_port)

    def _node_learnt(self, node_id: int) -> None:
        host, port = self.nodes.known_addresses[node_id]
        log.info(Event.NODE_LEARNT, node_id=node_id, server=f"{host}:{port}")
        for listener in self._listeners:
            listener.node_learnt(node_id)

    def _node_found(self, node_id: int) -> None:
        if self._kept_nodes is not None:
            self._kept_nodes.changed()
        if self._recorder is not None:
            self._recorder.broker_learnt(node_id, *self.nodes.known_addresses[node_id])
        if not self._moved:
            # Not at once: the answer that holds the address has to leave first.
            self.shared.loop.call_soon(self._close_misled)
        self._moved.add(node_id)

    def _close_misled(self) -> None:
        """Close connections for moved nodes that lead elsewhere: to a stand-in, or to where the node was.

        That broker does not lead the node's partitions, and no client would leave it for that: by its Metadata
        this connection is the right one.
        """
        moved, addresses = self._moved.copy(), self.nodes.known_addresses
        self._moved.clear()
        for connection in list(self.shared.connections):
            node_id = connection.context.node_id
            if node_id is None or node_id not in moved:
                continue
            if connection.server not in (None, addresses.get(node_id)):
                connection.close("moved", "its broker is elsewhere")

    async def _tick(self) -> None:
        """Once a second: forget idle users and ids that gave up, close idle connections."""
        while True:
            await next_tick()
            for work in (
                self._sweep_quota,
                self._sweep_bytes,
                self.count_lanes,
                self._check_connections,
                self._open_files.check_limit,
                self.open_missing_ports,
                self.limits.sample,
                self.slowness.sample,
            ):
                try:
                    turns = work(self.shared.now_ms())
                    if turns is not None:
                        await turns
                except Exception as error:
                    # The next second tries again: without this work nothing idle is ever closed or forgotten.
                    log.exception(Event.UNEXPECTED_ERROR, reason=f"once-a-second work: {error}")

    def _sweep_quota(self, now_ms: int) -> None:
        counters = self.counters
        passed = self._admission.fail_open.passed
        if passed > counters.quota_failed_open:
            counters.quota_failed_open = passed
            log.error(
                Event.QUOTA_FAILED_OPEN,
                reason="the quota's code raised an error; requests were let through",
            )
        gave_up = self._admission.sweep(now_ms)
        if self._recorder is not None:
            self._recorder.gave_up(gave_up)
            self._recorder.tick()
            counters.events_unrecorded = self._recorder.unrecorded

    def count_lanes(self, _now_ms: int) -> None:
        """Count what lanes have carried since the last time."""
        self.shared.lanes.count()

    def _sweep_bytes(self, now_ms: int) -> None:
        if now_ms - self._bytes_swept_ms >= BYTES_SWEPT_EVERY_MS:
            self._bytes_swept_ms = now_ms
            self.byte_quota.sweep(now_ms)

    async def _check_connections(self, now_ms: int) -> None:
        self.counters.buffered_bytes = self._budget.used_bytes
        self.counters.tasks = self._tasks()
        bounds = self._bounds
        limits = AgeLimits(self._settings.limits.idle_ms, bounds.frame_time_ms, bounds.login_time_ms)
        self.shared.connection_quotas.sweep(now_ms)
        muted = 0
        for number, connection in enumerate(list(self.shared.connections), 1):
            context = connection.session.context
            is_muted = context.muted_until_ms > now_ms
            muted += is_muted
            if is_muted or context.awaited_account is not None:
                connection.follow_quotas(now_ms)
            connection.check_age(now_ms, limits)
            if number % CHECKED_PER_TURN == 0:
                await asyncio.sleep(0)
        self.counters.muted_connections = muted

    def open_missing_ports(self, _now_ms: int) -> None:
        """Try again the ports that could not be opened when their brokers were learnt."""
        for listener in self._listeners:
            listener.open_missing()


def _own_questions(
    settings: Settings, outside: Outside, nodes: Nodes, tls: LiveContext | None
) -> OwnQuestions | None:
    """Return who asks brokers with the gateway's own credentials; None: it has none."""
    sasl, timeout_ms = settings.own_client, outside.bounds.connect_timeout_ms
    if sasl is None:
        return None
    sends_proxy_header = settings.cluster.proxy_protocol
    return OwnQuestions(sasl, outside.nonce, nodes, timeout_ms, tls, sends_proxy_header=sends_proxy_header)


def _open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MANY_OPEN_FILES if soft == resource.RLIM_INFINITY else min(soft, MANY_OPEN_FILES)


def _most_nodes(settings: Settings) -> tuple[int, int]:
    """Return how many nodes are learnt, and how many ports they have at most.

    Ports that the configuration does not list take an eighth of the open files at most.
    """
    listed = sum(len(listener.node_ids) for listener in settings.listeners)
    unlisted = sum(
        listener.first_node_port is not None and not listener.node_ids for listener in settings.listeners
    )
    most = min(MOST_NODES, _open_files() // 8 // FILES_OF_PORT // max(1, unlisted))
    return most, listed + most * unlisted


def _connection_limits(
    limits: LimitsSettings, bounds: Bounds, listeners: Sequence[ListenerSettings], node_ports: int
) -> ConnectionLimits:
    """Return the bounds on connections. The defaults follow from the process's limit of open files."""
    # A larger value in the file does not help: a connection without a descriptor is closed, one in the backlog waits.
    total = max(1, (_open_files() - OWN_OPEN_FILES - FILES_OF_PORT * node_ports) // 2)
    if limits.connections is not None:
        total = min(total, limits.connections)
    return ConnectionLimits(
        total,
        bounds.connections_per_s,
        limits.connections_per_user,
        limits.connections_rate_per_user,
        limits.connections_per_address,
        bounds.tls_handshakes,
        is_mixed=len({listener.requires_login for listener in listeners}) > 1
        or any(listener.tls is not None and listener.tls.identifies for listener in listeners),
    )
