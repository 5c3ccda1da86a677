"""The cluster as a client knows it: nodes, the connections to them, and the leaders of its topic."""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random

from pidgate.load.plan import Address
from tests.simulator.clients import frames
from tests.simulator.clients.batches import Told, Wait
from tests.simulator.clients.connection import Connection
from tests.simulator.clients.node import Node
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.traits import Traits
from tests.simulator.clients.turns import NEVER, Trace, Turns

MOST_IN_FLIGHT = 5


class ClusterClient(Turns):
    """What every client does about connections and metadata."""

    def __init__(
        self, traits: Traits, name: str, settings: Settings, random: Random, trace: Trace | None = None
    ) -> None:
        super().__init__(name, random, trace)
        self.traits = traits
        self.login = settings.login
        self.topic = settings.topic
        self.told = Told()
        self.t = settings.times or traits.times
        self.spoken = traits.newest | (settings.newest or {})
        """By API: the newest version that it speaks."""
        self.versions = dict(self.spoken)
        """By API: the newest that is used at present."""
        self.leaders: dict[int, tuple[int, int]] = {}
        """By partition: node id and leader epoch."""
        self.topic_id = b""
        self.nodes: dict[int, Node] = {
            -1 - number: Node(-1 - number, address) for number, address in enumerate(settings.bootstrap)
        }
        self.broken: list[Connection] = []
        """Connections on which it has broken the protocol."""
        self.metadata_wanted = True
        self._bootstrap = tuple(self.nodes.values())
        self._metadata_in_flight = False
        self._metadata_after_s = -NEVER
        self._metadata_tries = 0

    def throttled(self, node: Node, throttle_ms: int) -> None:
        """An answer said how long to leave a node alone."""
        if throttle_ms <= 0 or not self.traits.heeds_throttle:
            return
        now_s = self.loop.time()
        until_s = now_s + throttle_ms / 1000
        if node.connection is not None and self.traits.throttle_extends_timeouts:
            node.connection.allow_more_time(throttle_ms / 1000)
        if until_s > node.throttled_until_s:
            node.throttled_until_s = until_s
            self.told.waits.append(Wait("throttle", now_s, until_s))

    # ---- connections -----------------------------------------------------------------------------------

    def connect(self, node: Node, now_s: float) -> None:
        """Dial, if that is not under way and the back-off is over; a turn follows in any case."""
        if node.connection is not None or node.dialling is not None:
            return
        if now_s < node.retry_at_s:
            self.wake_at(node.retry_at_s)
            return
        node.last_attempt_s = now_s
        node.dialling = self.loop.create_task(self._dial(node), context=self.context)

    async def _dial(self, node: Node) -> None:
        connection = Connection(self, node, self.t.request_s)
        try:
            async with asyncio.timeout(self.t.connect_s):
                await self.loop.create_connection(lambda: connection, *node.address)
        except OSError as error:
            node.dialling = None
            self._lost(node, f"cannot connect: {type(error).__name__}")
            return
        node.dialling = None
        if node.connection is None and not connection.is_gone:
            node.connection = connection

    def connection_up(self, connection: Connection) -> None:
        node = connection.node
        if self.is_over:
            return
        assert isinstance(node, Node)
        node.connection, node.failures = connection, 0
        node.throttled_until_s = -NEVER
        if self.is_traced:
            self.note(f"connected to {node.node_id}")
        self.wake()

    def connection_down(self, connection: Connection, why: str) -> None:
        if self.is_over:
            return
        node, pending = connection.node, connection.in_flight
        assert isinstance(node, Node)
        connection.in_flight = deque()
        node.connection = None
        for asked in pending:
            asked.handler(None)
        self._lost(node, why)

    def _lost(self, node: Node, why: str) -> None:
        if self.is_over:
            return
        if self.is_traced:
            self.note(f"lost {node.node_id}: {why}")
        node.retry_at_s = node.last_attempt_s + self.backoff_s(
            self.t.reconnect_backoff_s, self.t.reconnect_backoff_max_s, node.failures
        )
        node.failures += 1
        self.request_metadata()
        self.wake()

    def hang_up(self, *, at_once: bool) -> None:
        """End all connections, for good."""
        self.stop()
        for node in (*self.nodes.values(), *self._bootstrap):
            self.drop(node, at_once=at_once)

    def drop(self, node: Node, *, at_once: bool = True) -> None:
        """End a node's connection, or the attempt to make one."""
        if node.dialling is not None:
            node.dialling.cancel()
        if node.connection is not None:
            node.connection.close(at_once=at_once)

    def break_protocol(self) -> None:
        """Send, behind what is in flight on each connection, a frame that is no request."""
        for node in self.known_nodes():
            if node.is_up and node.connection is not None and node.connection.in_flight:
                node.connection.break_protocol()
                self.broken.append(node.connection)

    # ---- metadata --------------------------------------------------------------------------------------

    def request_metadata(self) -> None:
        """The leaders are to be asked for again, as soon as the back-off allows."""
        if not self.metadata_wanted:
            self.metadata_wanted = True
            self.wake()

    def serve_metadata(self, now_s: float) -> None:
        """Ask for the leaders if it is time to, over the node that has least to do."""
        if not self.metadata_wanted or self._metadata_in_flight:
            return
        if now_s < self._metadata_after_s:
            self.wake_at(self._metadata_after_s)
            return
        node = self.least_loaded(now_s)
        if node is None:
            for known in self.known_nodes():
                at_s = max(known.retry_at_s, known.throttled_until_s)
                if at_s > now_s:
                    self.wake_at(at_s)
        elif not self.can_ask(node, now_s):
            self.connect(node, now_s)
        else:
            self._ask_metadata(node)

    def _ask_metadata(self, node: Node) -> None:
        self._metadata_in_flight = True
        version = node.speaks(frames.METADATA, self.versions[frames.METADATA])
        assert node.connection is not None

        def answered(frame: bytes | None) -> None:
            self._metadata_in_flight = False
            if frame is None:
                self._metadata_again_after(self.t.retry_backoff_s)
                return
            found = frames.read_metadata(frame, version)
            self.throttled(node, found.throttle_ms)
            self.learn(found)

        node.connection.ask(frames.metadata(version, self.name, self.topic), answered)

    def _metadata_again_after(self, first_s: float) -> None:
        most_s = max(first_s, self.t.retry_backoff_max_s)
        self._metadata_after_s = self.now_s + self.backoff_s(first_s, most_s, self._metadata_tries)
        self._metadata_tries += 1

    def learn(self, found: frames.Leaders) -> None:
        """Take over an answer about the leaders."""
        changed = self.learn_brokers(found.brokers)
        self.topic_id = found.topic_id or self.topic_id
        for partition, leader in found.leaders.items():
            changed = self.learn_leader(partition, leader) or changed
        self.metadata_wanted = not found.leaders or bool(found.error_code)
        if changed:
            self._metadata_tries = 0
        self._metadata_again_after(self.t.metadata_backoff_s)
        self.wake()

    def learn_leader(self, partition: int, leader: tuple[int, int]) -> bool:
        """Take over one leader unless a later one is known."""
        known = self.leaders.get(partition)
        if known == leader or (known is not None and -1 < leader[1] < known[1]):
            return False
        self.leaders[partition] = leader
        if self.is_traced and (known is None or known[0] != leader[0]):
            self.note(f"leader of {partition} is {leader[0]}, epoch {leader[1]}")
        return True

    def learn_brokers(self, brokers: dict[int, Address]) -> bool:
        """Take over the addresses of all nodes."""
        changed = False
        for node_id, address in brokers.items():
            node = self.nodes.get(node_id)
            if node is None or node.address != address:
                changed = True
                if node is not None and node.connection is not None:
                    node.connection.close("its node moved")
                self.nodes[node_id] = Node(node_id, address)
        return changed

    def node_at(self, node_id: int, address: Address) -> Node:
        """That node, known or not."""
        if node_id not in self.nodes:
            self.nodes[node_id] = Node(node_id, address)
        return self.nodes[node_id]

    def known_nodes(self) -> list[Node]:
        """Those of the metadata, or the bootstrap servers before there is any."""
        found = [node for node_id, node in self.nodes.items() if node_id >= 0]
        return found or list(self._bootstrap)

    def can_ask(self, node: Node, now_s: float) -> bool:
        """Whether a request may be sent to a node now."""
        return node.is_up and node.throttled_until_s <= now_s and node.in_flight < MOST_IN_FLIGHT

    def least_loaded(self, now_s: float) -> Node | None:
        """Java's leastLoadedNode: idle, else least in flight, else connecting, else longest not tried."""
        nodes = self.known_nodes()
        first = self.random.randrange(len(nodes))
        ready: Node | None = None
        connecting: Node | None = None
        to_try: Node | None = None
        for node in nodes[first:] + nodes[:first]:
            if self.can_ask(node, now_s):
                if node.in_flight == 0:
                    return node
                if ready is None or node.in_flight < ready.in_flight:
                    ready = node
            elif node.dialling is not None or (node.connection is not None and not node.is_up):
                connecting = node
            elif (
                node.connection is None
                and now_s >= node.retry_at_s
                and (to_try is None or node.last_attempt_s < to_try.last_attempt_s)
            ):
                to_try = node
        return ready or connecting or to_try
