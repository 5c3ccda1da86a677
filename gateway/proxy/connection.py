"""What the connections of one port share, and how a connection gets its broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from socket import gaierror
from typing import TYPE_CHECKING

from pidgate.gateway.clock import monotonic_ms
from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.cluster.nodes import Address, NodePorts, Nodes
from pidgate.gateway.cluster.topic_names import TopicNames
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy.broker_channel import BrokerChannel
from pidgate.gateway.proxy.buffers import BufferBudget
from pidgate.gateway.proxy.refusal_log import CloseLog, OwnTopicLog, RefusalLog
from pidgate.gateway.quotas.administration import Administer, OnChanged
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.gateway.recording.recorder import Recorder
from pidgate.protocol.sasl import SaslExchange
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteQuota
from pidgate.quota.changes import Change
from pidgate.quota.state import PendingDecision
from pidgate.quota.verdicts import Session

if TYPE_CHECKING:
    from pidgate.gateway.proxy.client_channel import ClientChannel

log = logger()

QUIET_MS = 1_000


Asker = Callable[[PendingDecision, Callable[[PendingDecision], None]], None]
"""Sends a question off; calls back once, with the answer in it, or with one made in its place."""


def _nobody_to_tell(changes: Sequence[Change], _only_check: bool, done: OnChanged) -> None:
    done(["quotas cannot be changed through this gateway" for _ in changes], None)


def _nobody_to_ask(_asked: PendingDecision, _answered: Callable[[PendingDecision], None]) -> None:
    raise RuntimeError("the quota's state is in this process; nothing is ever asked elsewhere")


class Shared:
    """What all connections of the process share: the one quota, the counters, the memory."""

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
    ) -> None:
        self.loop = loop
        self.now_ms = monotonic_ms(loop)
        self.admission = admission
        self.nodes = nodes
        self.counters = counters
        self.budget = budget
        self.frame_limit_bytes = frame_limit_bytes
        self.connect_timeout_ms = connect_timeout_ms
        self.byte_quota = byte_quota or ByteQuota(admission.quotas, self.now_ms())
        self.channels: set[ClientChannel] = set()
        self.transports: set[asyncio.Transport] = set()
        """Every open socket of a connection; some brokers' outlive their client's while bytes leave."""
        self.all_closed = asyncio.Event()
        """Set whenever no socket is open."""
        self.all_closed.set()
        self.connecting: set[asyncio.Task[None]] = set()
        self.topic_names = TopicNames(loop, admission.sticky.topics.learn)
        self.gateway_topics = gateway_topics or GatewayTopics()
        self.gateway_topic_log = OwnTopicLog()
        self.refusal_log = RefusalLog()
        self.close_log = CloseLog()
        budget.on_full = self._read_sparingly
        self.recorder: Recorder | None = None
        """None: no events are written."""
        self.ask: Asker = _nobody_to_ask
        """Puts a question to a quota state in another process."""
        self.administer: Administer = _nobody_to_tell
        self._connection_id, self._connection_step = 0, 1
        self.quiet_until_ms = 0
        """Until then no further failure to connect is logged."""

    def _read_sparingly(self) -> None:
        """Memory is spent: no socket may bring as much as it likes."""
        for channel in self.channels:
            channel.read_large()
            if channel.broker is not None:
                channel.broker.read_large()

    def number_connections(self, first: int, step: int) -> None:
        """Workers count in steps of their number, so that a connection's id is the gateway's own."""
        self._connection_id, self._connection_step = first - step, step

    def next_connection_id(self) -> int:
        self._connection_id += self._connection_step
        return self._connection_id


class ConnectionContext:
    """One listening port: which listener it belongs to and which node it stands for."""

    def __init__(self, shared: Shared, ports: NodePorts, node_id: int | None) -> None:
        self._shared = shared
        self._ports = ports
        self.node_id = node_id
        """None: the bootstrap port."""
        self.listener_name = ports.listener.name
        # Flattened, because the hot path reads them for every read of every socket.
        self.loop = shared.loop
        self.admission = shared.admission
        self.counters = shared.counters
        self.budget = shared.budget
        self.frame_limit_bytes = shared.frame_limit_bytes
        self.byte_quota = shared.byte_quota
        self.topic_names = shared.topic_names
        self.gateway_topics = shared.gateway_topics
        self.gateway_topic_log = shared.gateway_topic_log
        self.refusal_log = shared.refusal_log
        self.close_log = shared.close_log
        self.now_ms: Callable[[], int] = shared.now_ms
        self.next_connection_id: Callable[[], int] = shared.next_connection_id
        self.ask = shared.ask
        self.administer = shared.administer

    def translate(self, node_id: int, host: str, port: int) -> Address:
        """A broker's answer shows a broker: learn where it is, tell what this listener's clients see."""
        self._shared.nodes.learn(node_id, host, port)
        return self._ports.advertised(node_id)

    def recorder_of(self, session: Session, sasl: SaslExchange) -> ConnectionRecorder | None:
        """Who tells of a connection on this port."""
        recorder = self._shared.recorder
        if recorder is None:
            return None
        return ConnectionRecorder(recorder, session, sasl, self.listener_name, self.node_id)

    def socket_opened(self, transport: asyncio.Transport) -> None:
        """Of either side."""
        self._shared.transports.add(transport)
        self._shared.all_closed.clear()

    def socket_closed(self, transport: asyncio.Transport) -> None:
        self._shared.transports.discard(transport)
        if not self._shared.transports:
            self._shared.all_closed.set()

    def opened(self, channel: ClientChannel) -> None:
        self._shared.channels.add(channel)
        self.counters.connections_total += 1
        self.counters.connections_open += 1
        log.debug(Event.CONNECTION_OPENED, **channel.describe())

    def closed(self, channel: ClientChannel, cause: str) -> None:
        self._shared.channels.discard(channel)
        counters = self.counters
        counters.connections_open -= 1
        counters.connections_closed[cause] += 1
        if channel.recorder is not None:
            channel.recorder.closed(cause)
        self.admission.connection_closed(channel.connection_id, self.now_ms())

    def connect_upstream(self, channel: ClientChannel) -> None:
        """Connect to the port's broker in the background; the channel is told, or closed."""
        task = self.loop.create_task(self._connect(channel))
        self._shared.connecting.add(task)
        task.add_done_callback(self._shared.connecting.discard)

    async def _connect(self, channel: ClientChannel) -> None:
        nodes = self._shared.nodes
        failure = ""
        targets = nodes.candidates(self.node_id)
        tried: set[Address] = set()
        while targets and not channel.is_gone:
            host, port = channel.server = targets.pop(0)
            tried.add((host, port))
            try:
                async with asyncio.timeout(self._shared.connect_timeout_ms / 1000):
                    await self.loop.create_connection(
                        lambda: BrokerChannel(channel).as_protocol(), host, port
                    )
            except TimeoutError:
                failure = f"{host}:{port} did not answer within {self._shared.connect_timeout_ms} ms"
                cause = "timeout"
            except (OSError, ValueError, OverflowError) as error:
                # ValueError and OverflowError: a broker advertises what is no host name or no port.
                failure = f"{host}:{port}: {getattr(error, 'strerror', None) or error}"
                cause = _cause_of(error)
            else:
                return
            self._connect_failed(channel, (host, port), cause)
            if not targets and cause != "timeout":
                # A node that has gone is forgotten by now, and the others stand in for it.
                targets = [target for target in nodes.candidates(self.node_id) if target not in tried]
        channel.close("unreachable", f"no broker could be reached: {failure}")

    def _connect_failed(self, channel: ClientChannel, address: Address, cause: str) -> None:
        self.counters.upstream_failures[cause] += 1
        if self.node_id is not None:
            self._shared.nodes.forget(self.node_id, address)
        # A client that is refused comes back at once: one line a second says it, the counter says how often.
        now_ms = self.now_ms()
        if now_ms >= self._shared.quiet_until_ms:
            self._shared.quiet_until_ms = now_ms + QUIET_MS
            server = f"{address[0]}:{address[1]}"
            log.warning(Event.UPSTREAM_FAILED, server=server, cause=cause, **channel.describe())


def _cause_of(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    return "resolve" if isinstance(error, gaierror | UnicodeError) else "unreachable"
