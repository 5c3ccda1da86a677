"""ModelCluster: a Kafka cluster as pure state, at the level of bytes: request frames in, framed answers out.

Time comes in as `now_ms` and never goes back. Everything that takes time (replication, markers, blocks of producer ids)
takes what `Delays` says, 0 by default, and runs when the cluster is asked again or by `advance`; `next_due_ms` says
when that is wanted. Requests of one connection are answered one at a time: who drives it (server.py, a test) hands over
the next frame only after the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.headers import RequestHead, peek_request
from pidgate.protocol.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from pidgate.protocol.produce import MAX_VERSION, PRODUCE
from tests.simulator.brokers import cold_apis
from tests.simulator.brokers.fetch import FETCH, LIST_OFFSETS, FetchApi
from tests.simulator.brokers.groups import GROUP_APIS, Groups
from tests.simulator.brokers.nodes import Nodes
from tests.simulator.brokers.partition import Partition
from tests.simulator.brokers.produce import Fault, ProduceApi
from tests.simulator.brokers.replies import Later, Reply
from tests.simulator.brokers.sessions import Closed, Listener, Session, sasl_out_of_place
from tests.simulator.brokers.timers import Delays, Timers
from tests.simulator.brokers.topics import Topics
from tests.simulator.brokers.transaction_apis import Transactions
from tests.simulator.brokers.wire import FIRST_PRODUCE_VERSION

EXPIRY_CHECK_MS: Final = 600_000
"""producer.id.expiration.check.interval.ms."""
PLAINTEXT: Final = Listener()


class ModelCluster:
    """Nodes 1 to n, their topics, their producer ids, their transactions."""

    def __init__(
        self,
        nodes: int = 1,
        topics: Mapping[str, int] | None = None,
        *,
        replication_factor: int = 3,
        min_in_sync: int = 1,
        listeners: Iterable[Listener] = (PLAINTEXT,),
        delays: Delays | None = None,
        first_producer_id: int = 0,
        now_ms: int = 0,
    ) -> None:
        """`topics`: name -> number of partitions."""
        delays = delays or Delays()
        self.timers = Timers(now_ms)
        self.nodes = Nodes(nodes, listeners, self.timers, delays, first_producer_id)
        self.topics = Topics(self.nodes.ids, self.timers, delays, replication_factor, min_in_sync)
        for name, partitions in (topics or {}).items():
            self.topics.create(name, partitions)
        self.transactions = Transactions(self.nodes, self.topics, self.timers, delays)
        self._produce = ProduceApi(self.nodes, self.topics, self.timers, delays, self.transactions)
        self._fetch = FetchApi(self.topics, self.timers)
        self.groups = Groups(self.topics, self.timers)
        self._next_expiry_ms = now_ms + EXPIRY_CHECK_MS
        self._cached: dict[tuple[int, int, str, bytes], bytes] = {}
        self._cached_epoch = -1

    # ---- requests ----------------------------------------------------------------------------------------

    def connect(self, node_id: int, listener: str = PLAINTEXT.name) -> Session:
        """Return a new connection to a node. Raises ConnectionRefusedError when it is down."""
        return self.nodes.connect(node_id, listener)

    def handle(self, session: Session, frame: bytes, now_ms: int) -> Reply:
        """Act on a whole request frame (without its size prefix); return the framed answer.

        None: there is no answer (acks=0). Later: it waits for something, `advance` brings it.
        Raises Closed or ClosedAfter: the broker closes the connection.
        """
        self.advance(now_ms)
        try:
            head = peek_request(frame, 0, len(frame))
            if session.principal is None:
                answer = session.authenticate(frame, head)
                if answer is not None:
                    return answer
                session.has_asked_versions = cold_apis.is_served(head)
            if head.api_key == PRODUCE and FIRST_PRODUCE_VERSION <= head.api_version <= MAX_VERSION:
                return _now_or_later(self._produce.answer(session, frame, head))
            return self._cold(session, frame, head)
        except KafkaProtocolError as error:
            raise Closed(str(error)) from error

    def answer(self, session: Session, frame: bytes, now_ms: int) -> bytes | None:
        """Like `handle`, where everything is done at once. Raises AssertionError when something takes time."""
        reply = self.handle(session, frame, now_ms)
        assert not isinstance(reply, Later), "the answer waits: use handle, and advance"
        return reply

    def _cold(self, session: Session, frame: bytes, head: RequestHead) -> Reply:
        if not cold_apis.is_served(head):
            if head.api_key == API_VERSIONS:
                return cold_apis.too_new_api_versions(head)
            raise Closed(f"api key {head.api_key} version {head.api_version}")
        if head.api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            return sasl_out_of_place(head)
        if head.api_key in (FETCH, LIST_OFFSETS):
            return _now_or_later(self._fetch.answer(session, frame, head))
        if head.api_key in GROUP_APIS:
            return self.groups.answer(session, frame, head)
        if head.api_key not in cold_apis.READ_ONLY:
            return self.transactions.answer(session, frame, head)
        if self._cached_epoch != self.topics.epoch:
            self._cached, self._cached_epoch = {}, self.topics.epoch
        key = (
            head.api_key << 16 | head.api_version,
            session.node_id,
            session.listener.name,
            frame[head.body :],
        )
        known = self._cached.get(key)
        if known is None:
            known = cold_apis.answer(self.nodes, self.topics, session, frame, head)
            self._cached[key] = known
        return known[:4] + frame[4:8] + known[8:]

    # ---- time, and what happens to nodes -------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When `advance` has something to do; None: never, as things are."""
        return self.timers.next_due_ms

    def advance(self, now_ms: int) -> None:
        """Let time pass."""
        self.timers.advance(now_ms)
        if self.timers.now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = self.timers.now_ms + EXPIRY_CHECK_MS
            for partition in self.topics.partitions():
                partition.states.expire(self.timers.now_ms)

    def fault(self, fault: Callable[[Session, Partition], Fault | None]) -> None:
        """From now on ask this for each partition of a Produce: it may fail, with or without having appended."""
        self._produce.fault = fault

    def partition(self, topic: str, index: int) -> Partition:
        """Return a partition, for checks: its log, its leader, what it lost. Raises KeyError."""
        found = self.topics.partition(topic, index)
        if found is None:
            raise KeyError(f"{topic}-{index}")
        return found

    def move_leader(self, topic: str, index: int, node_id: int) -> None:
        """Make another in-sync replica the leader. What it lacks is lost. Raises KeyError, ValueError."""
        self.topics.move_leader(self.partition(topic, index), node_id)

    def stop(self, node_id: int) -> None:
        """The node is gone: others lead, and nobody can connect to it. Its connections are the caller's to cut."""
        self.nodes.down[node_id] = None
        self._fetch.stop(node_id)
        self.topics.node_lost(node_id)

    def start(self, node_id: int) -> None:
        """The node runs again, and is in sync."""
        self.nodes.start(node_id)
        self.topics.node_back(node_id)

    @property
    def sessions_lost(self) -> int:
        """Return how many Fetches did not fit a session."""
        return self._fetch.sessions_lost

    def address(self, node_id: int, listener: str = PLAINTEXT.name) -> tuple[str, int]:
        """Return host and port of a node's listener."""
        return self.nodes.endpoint(node_id, listener)[1:]


def _now_or_later(reply: Reply) -> Reply:
    if not isinstance(reply, Later) or not reply.is_done:
        return reply
    if reply.closes:
        raise Closed("an error of a request without an answer")
    return reply.value
