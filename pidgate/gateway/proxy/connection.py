"""State shared by all connections, and by the connections of one port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from pidgate.gateway.clock import monotonic_ms, monotonic_s
from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.cluster.broker_answers import BrokerAnswers
from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.cluster.nodes import Address, NodePorts, Nodes
from pidgate.gateway.cluster.token_lookup import TokenLookup
from pidgate.gateway.cluster.token_owners import TokenOwners
from pidgate.gateway.cluster.topic_names import TopicNames
from pidgate.gateway.cluster.upstream_identity import UpstreamIdentity
from pidgate.gateway.lane.lanes import Lanes
from pidgate.gateway.logs import Event, LogLimit, logger, writes_debug
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy.accepting import Accepting
from pidgate.gateway.proxy.apis.api import Surroundings
from pidgate.gateway.proxy.apis.table import ANSWERS_IN_LANES
from pidgate.gateway.proxy.buffers import BEFORE_LOGIN, BufferBudget
from pidgate.gateway.proxy.byte_waits import ByteWaits
from pidgate.gateway.proxy.connection_age import AgeLimits, ConnectionAge
from pidgate.gateway.proxy.connection_quotas import ConnectionLimits, ConnectionQuotas
from pidgate.gateway.proxy.connection_state import Life
from pidgate.gateway.proxy.frame_reservation import KEPT_FRAME_BYTES
from pidgate.gateway.proxy.reading import Socket
from pidgate.gateway.proxy.refusal_log import ClientLog, CloseLog, GatewayTopicLog, RefusalLog
from pidgate.gateway.proxy.session import Session
from pidgate.gateway.proxy.turns import Turns
from pidgate.gateway.quotas.administration import Administer, OnChanged
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.gateway.recording.recorder import Recorder
from pidgate.gateway.tls.live import LiveContext
from pidgate.protocol.oauthbearer import DEFAULT_CLAIM
from pidgate.protocol.sasl import SaslExchange
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteQuota
from pidgate.quota.changes import Change
from pidgate.quota.decisions import Client
from pidgate.quota.entities import User

log = logger()


FRAME_BEFORE_LOGIN_BYTES: Final = 512 * 1024
"""Largest frame before or during a login, as in brokers (sasl.server.max.receive.size)."""

GAVE_WAY: Final = (
    "closed for a newer connection: it was silent or not logged in (a sixteenth of limits.connections)"
)

UNLIMITED: Final = ConnectionLimits(total=1 << 30, per_s=1 << 30, per_user=1 << 30, per_user_per_s=1 << 30)


class Connection(Protocol):
    """A client's connection as seen by code that manages all of them. Implemented by ClientConnection."""

    context: ConnectionContext
    session: Session
    client: Client
    server: Address | None
    recorder: ConnectionRecorder | None
    socket: Socket
    age: ConnectionAge
    address_is_known: bool

    @property
    def awaits_login(self) -> bool: ...
    @property
    def life(self) -> Life: ...
    def describe(self) -> dict[str, Any]: ...
    def read_sparingly(self) -> None: ...
    def authentication_learnt(self) -> None: ...
    def awaits_broker(self) -> bool: ...
    def check_age(self, now_ms: int, limits: AgeLimits) -> None: ...
    def follow_quotas(self, now_ms: int) -> None: ...
    def close(self, cause: str, reason: str) -> None: ...
    def close_now(self, cause: str, reason: str) -> None: ...


# Functions and not methods of a connection: a bound method takes 64 bytes of each.


def _give_way(connection: Connection) -> None:
    connection.close_now("limit", GAVE_WAY)


def _awaits_broker(connection: Connection) -> bool:
    return connection.awaits_broker()


def _nobody_to_tell(changes: Sequence[Change], _only_check: bool, done: OnChanged) -> None:
    done(["quotas cannot be changed through this gateway" for _ in changes], None)


def _no_present(_user: User, on_told: Callable[[str], None]) -> None:
    on_told("")


class Shared:
    """State of all connections: the quota, the counters, the memory."""

    kept_frame_bytes = KEPT_FRAME_BYTES
    lane_frame_bytes = KEPT_FRAME_BYTES
    """Most bytes of a Produce that a lane passes on."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        admission: Admission,
        nodes: Nodes,
        counters: Counters,
        budget: BufferBudget,
        frame_limit_bytes: int,
        connect_timeout_ms: int,
        gateway_topics: GatewayTopics | None = None,
        byte_quota: ByteQuota | None = None,
        connection_limits: ConnectionLimits = UNLIMITED,
        upstream_tls: LiveContext | None = None,
        upstream_identity: UpstreamIdentity | None = None,
        sends_proxy_header: bool = False,
        lane_extension: Any = None,
    ) -> None:
        self.loop = loop
        self.now_ms = monotonic_ms(loop)
        self.connection_quotas = ConnectionQuotas(connection_limits, counters)
        self.accepting = Accepting(loop, self.now_ms, self.connection_quotas, counters)
        self.admission = admission
        self.nodes = nodes
        self.counters = counters
        self.budget = budget
        self.frame_limit_bytes = frame_limit_bytes
        self.frame_before_auth_bytes = min(FRAME_BEFORE_LOGIN_BYTES, frame_limit_bytes)
        self.connect_timeout_ms = connect_timeout_ms
        self.sends_proxy_header = sends_proxy_header
        self.upstream_tls = upstream_tls
        """None: broker connections use no TLS."""
        self.upstream_identity = upstream_identity
        """None: clients log in by themselves, if at all."""
        self.byte_quota = byte_quota or ByteQuota(admission.state.in_force)
        self.byte_waits = ByteWaits(loop, self.now_ms)
        self.broker_answers = BrokerAnswers(
            nodes.resolver,
            connect_timeout_ms,
            self.now_ms,
            upstream_tls,
            sends_proxy_header=sends_proxy_header,
        )
        self.turns = Turns(loop.call_soon, self._count_bytes)
        self.connections: dict[Connection, None] = {}
        """In order of arrival, like every collection here that is iterated."""
        self.transports: dict[asyncio.Transport, None] = {}
        """Every open socket of a connection. A broker's socket may outlive its client's while bytes are sent."""
        self.all_closed = asyncio.Event()
        """Set while no socket is open."""
        self.all_closed.set()
        self.connecting: dict[asyncio.Task[None], None] = {}
        self.token_owners = TokenOwners()
        self.token_lookup: TokenLookup | None = None
        """None: brokers are not asked for owners."""
        self.topic_names = TopicNames(loop, admission.sticky.topics.learn)
        self.gateway_topics = gateway_topics or GatewayTopics()
        self.gateway_topics.on_learnt = admission.grants.all_changed
        self.lanes = Lanes(loop, counters, ANSWERS_IN_LANES, self.gateway_topics, lane_extension)
        self.authentication = Authentication()
        """Authentication as observed at the brokers, for listeners without a configured one."""
        self.gateway_topic_log = GatewayTopicLog()
        self.refusal_log = RefusalLog()
        self.client_log = ClientLog()
        self.close_log = CloseLog()
        budget.on_full = self._read_sparingly
        self.recorder: Recorder | None = None
        """None: no events are written."""
        self.administer: Administer = _nobody_to_tell
        self.tell_user: Callable[[User, Callable[[str], None]], None] = _no_present
        self._connection_id = 0
        self.upstream_log = LogLimit()
        """Limits log lines about failed connections to brokers."""

    def _count_bytes(self, user: str, bytes_in: int, bytes_out: int) -> None:
        if user not in ("", BEFORE_LOGIN):
            self.admission.counters.count_bytes(user, bytes_in, bytes_out, self.now_ms())

    def _read_sparingly(self) -> None:
        """Make all sockets read into small buffers: memory is spent."""
        for connection in self.connections:
            connection.read_sparingly()

    def authentication_learnt(self) -> None:
        """Continue all connections that waited until it was known whether a login is required."""
        for connection in list(self.connections):
            connection.authentication_learnt()

    def next_connection_id(self) -> int:
        self._connection_id += 1
        return self._connection_id


class ConnectionContext:
    """One listening port: its listener and its node."""

    def __init__(
        self,
        shared: Shared,
        ports: NodePorts,
        node_id: int | None,
        requires_login: bool | None = None,
        principal_claim: str = DEFAULT_CLAIM,
    ) -> None:
        """Set up a port.

        `requires_login` None: as observed at the brokers. `principal_claim`: see SaslExchange.
        """
        self.shared = shared
        self._ports = ports
        self.node_id = node_id
        """None: the bootstrap port."""
        self.listener_name = ports.listener.name
        # Flat attributes, because the hot path reads them on every read of every socket.
        self.loop = shared.loop
        self.admission = shared.admission
        self.counters = shared.counters
        self.budget = shared.budget
        self.frame_limit_bytes = shared.frame_limit_bytes
        self.frame_before_auth_bytes = shared.frame_before_auth_bytes
        self.kept_frame_bytes = shared.kept_frame_bytes
        self.authentication = (
            shared.authentication if requires_login is None else Authentication(requires_login)
        )
        self.surroundings = Surroundings(
            shared.admission,
            counters=shared.counters,
            gateway_topics=shared.gateway_topics,
            byte_quota=shared.byte_quota,
            authentication=self.authentication,
            token_owners=shared.token_owners,
            translate=self.translate,
            node_is_known=self.node_is_known,
            learn_topics=shared.topic_names.queue_answer,
            principal_claim=principal_claim,
            gateway_logs_in=shared.upstream_identity is not None and shared.upstream_identity.is_of_everybody,
            hosts=shared.nodes.hosts,
            clock_s=monotonic_s,
        )
        self.gateway_topic_log = shared.gateway_topic_log
        self.refusal_log = shared.refusal_log
        self.client_log = shared.client_log
        self.close_log = shared.close_log
        self.now_ms: Callable[[], int] = shared.now_ms
        self.next_connection_id: Callable[[], int] = shared.next_connection_id
        self.administer = shared.administer

    def node_is_known(self) -> bool:
        """Return whether this port's node is known, so that no other broker is substituted for it."""
        return self.shared.nodes.knows_node(self.node_id)

    def translate(self, node_id: int, host: str, port: int) -> Address:
        """Learn a broker's real address; return this listener's advertised address."""
        self.shared.nodes.learn_node(node_id, host, port)
        return self._ports.advertised_address(node_id)

    def recorder_of(self, client: Client, sasl: SaslExchange) -> ConnectionRecorder | None:
        """Return the recorder of a connection on this port. None: no events are written."""
        recorder = self.shared.recorder
        if recorder is None:
            return None
        return ConnectionRecorder(recorder, client, sasl, self.listener_name, self.node_id)

    def socket_opened(self, transport: asyncio.Transport) -> None:
        """Count an open socket of either side."""
        self.shared.transports[transport] = None
        self.shared.all_closed.clear()

    def socket_closed(self, transport: asyncio.Transport) -> None:
        self.shared.transports.pop(transport, None)
        if not self.shared.transports:
            self.shared.all_closed.set()

    def opened(self, connection: Connection) -> None:
        self.shared.connections[connection] = None
        self.counters.connections_total += 1
        self.counters.connections_open += 1
        if writes_debug():
            log.debug(Event.CONNECTION_OPENED, **connection.describe())
        shared = self.shared
        if self.authentication.required is False:
            connection.authentication_learnt()  # it may have been learnt between construction and registration
        shared.connection_quotas.opened(connection, _give_way, self.now_ms(), _awaits_broker)
        if connection.address_is_known:
            self.addressed(connection)
        shared.accepting.check_limits()

    def addressed(self, connection: Connection) -> None:
        """Count a connection for its address; close it if the address has too many."""
        if not self.shared.connection_quotas.addressed(connection, connection.client.address):
            connection.close("limit", "its address has too many: limits.connections_per_address")

    def closed(self, connection: Connection, cause: str) -> None:
        self.shared.connections.pop(connection, None)
        self.shared.connection_quotas.closed(connection)
        counters = self.counters
        counters.connections_open -= 1
        counters.connections_closed[cause] += 1
        if connection.recorder is not None:
            connection.recorder.closed(cause)
        self.admission.connection_closed(connection.client.connection_id, self.now_ms())
