"""librdkafka's requests to its transaction coordinator: found, partitions registered, the transaction ended."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING

from pidgate.protocol import messages
from tests.simulator.clients import errors, frames
from tests.simulator.clients.node import Node
from tests.simulator.clients.turns import NEVER

if TYPE_CHECKING:
    from tests.simulator.clients.librdkafka import LibrdkafkaProducer

COORDINATOR = -1_000
"""The node id of the logical broker that the coordinator is: it has a connection of its own."""

_AGAIN_S = 0.5
_CONCURRENT_S = 0.02
_FENCED = (errors.STALE_EPOCH, errors.FENCED)
_FATAL = frozenset({*_FENCED, errors.TRANSACTION_FORBIDDEN, errors.CLUSTER_FORBIDDEN, errors.INVALID_STATE})
_MOVED = (errors.NO_COORDINATOR, errors.NOT_COORDINATOR)
_LATER = (errors.LOAD_IN_PROGRESS, errors.CONCURRENT_TRANSACTIONS)
_NEEDS_EPOCH = (errors.UNKNOWN_PRODUCER_ID, errors.INVALID_MAPPING)


class State(Enum):
    """`rd_kafka_txn_state_t`."""

    INIT = auto()
    WAIT_PID = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    BEGIN_COMMIT = auto()
    COMMITTING = auto()
    BEGIN_ABORT = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()


class CoordinatorRequests:
    """What goes to the coordinator, over a connection of its own; `LibrdkafkaTransactions` says when."""

    def __init__(self, client: LibrdkafkaProducer) -> None:
        self.state = State.INIT
        self.client = client
        self.call: asyncio.Future[str] | None = None
        """The application waits for this."""
        self.error = ""
        self.needs_epoch = False
        self.requests = 0
        """AddPartitionsToTxn that may have been taken: without any there is nothing to end."""
        self.pending: dict[int, None] = {}
        self.asked: tuple[int, ...] = ()
        self._register_s = NEVER
        self._query_s = NEVER
        self._is_querying = False
        self._end_s = NEVER
        self._is_commit = False

    def abortable(self, why: str, *, needs_epoch: bool = False) -> None:
        """The application has to abort."""
        raise NotImplementedError

    def answer_call(self, error: str = "") -> None:
        """The application's call is over."""
        if self.call is not None and not self.call.done():
            self.call.set_result(error)

    # ---- requests --------------------------------------------------------------------------------------

    def serve(self, now_s: float) -> None:
        """Send what is due."""
        client = self.client
        if client.transactional_id is None:
            return
        if client.told.fatal:
            self.answer_call(client.told.fatal)
            return
        node = client.nodes.get(COORDINATOR)
        if node is None:
            self._query(now_s)
            return
        if not node.is_up:
            client.connect(node, now_s)
            return
        client.id.go_on()
        if self._register_s <= now_s:
            self._register(node)
        if self._end_s <= now_s:
            self._send_end(node)
        for due_s in (self._register_s, self._end_s):
            if due_s > now_s and due_s != NEVER:
                client.wake_at(due_s)

    def hurry(self) -> None:
        """A broker is up: ask for the coordinator now."""
        self._query_s = NEVER

    def forget_coordinator(self) -> None:
        """It has moved; ask again."""
        node = self.client.nodes.pop(COORDINATOR, None)
        if node is not None and node.connection is not None:
            node.connection.close("no coordinator")
        self.client.wake()

    def reachable_coordinator(self) -> Node | None:
        """To ask it for an id; None while it is not connected."""
        node = self.client.nodes.get(COORDINATOR)
        return node if node is not None and node.is_up else None

    def _query(self, now_s: float) -> None:
        """`rd_kafka_txn_coord_query`."""
        client = self.client
        if self._is_querying:
            return
        if self._query_s != NEVER and now_s < self._query_s:
            client.wake_at(self._query_s)
            return
        up = [node for node in client.known_nodes() if client.can_ask(node, now_s)]
        if not up:
            # `rd_kafka_connect_any`
            known = client.known_nodes()
            client.connect(known[client.random.randrange(len(known))], now_s)
            self._query_s = now_s + _AGAIN_S
            client.wake_at(self._query_s)
            return
        node = up[client.random.randrange(len(up))]
        self._is_querying, self._query_s = True, NEVER
        assert node.connection is not None
        assert client.transactional_id is not None
        version = node.speaks(frames.FIND_COORDINATOR, client.versions[frames.FIND_COORDINATOR])

        def answered(frame: bytes | None) -> None:
            self._is_querying = False
            found = None if frame is None else frames.read_coordinator(frame, version)
            if found is not None and found.error_code == 0:
                client.nodes[COORDINATOR] = Node(COORDINATOR, (found.host, found.port))
            elif found is not None and found.error_code in _FATAL:
                client.is_of_no_use(errors.words(found.error_code))
            else:
                self._query_s = client.now_s + _AGAIN_S
            client.wake()

        node.connection.ask(frames.find_coordinator(version, client.name, client.transactional_id), answered)

    def register_after(self, for_s: float) -> None:
        """Register partitions then."""
        self._register_s = self.client.now_s + for_s
        self.client.wake()

    def _register(self, node: Node) -> None:
        """`rd_kafka_txn_register_partitions`."""
        client = self.client
        self._register_s = NEVER
        if self.state not in (State.IN_TRANSACTION, State.BEGIN_COMMIT) or not self.pending or self.asked:
            return
        self.asked = tuple(sorted(self.pending))
        self.pending.clear()
        self.requests += 1
        version = node.speaks(frames.ADD_PARTITIONS, client.versions[frames.ADD_PARTITIONS])
        assert node.connection is not None
        assert client.transactional_id is not None
        if client.is_traced:
            client.note(f"adds {self.asked} to its transaction")

        def answered(frame: bytes | None) -> None:
            asked, self.asked = self.asked, ()
            if self.state not in (State.IN_TRANSACTION, State.BEGIN_COMMIT):
                return
            if frame is None:
                self._register_again(asked, _AGAIN_S)
            else:
                self._registered(asked, frames.read_add_partitions(frame, version))

        client_frame = frames.add_partitions(
            version, client.name, client.transactional_id, client.id.pid, client.topic, self.asked
        )
        node.connection.ask(client_frame, answered)

    def _register_again(self, partitions: tuple[int, ...], for_s: float) -> None:
        self.pending.update(dict.fromkeys(partitions))
        self.register_after(for_s)

    def _registered(self, asked: tuple[int, ...], codes: dict[int, int]) -> None:
        client = self.client
        for partition, code in codes.items():
            if code == 0:
                client.toppars[partition].is_registered = True
        left = tuple(partition for partition in asked if codes.get(partition, 0))
        code = next((code for code in codes.values() if code), 0)
        if code in _MOVED:
            self.forget_coordinator()
        if code in _FATAL:
            client.is_of_no_use("fenced" if code in _FENCED else errors.words(code))
        elif code in _NEEDS_EPOCH:
            client.id.bump()
        elif code in (*_MOVED, *_LATER, errors.UNKNOWN_TOPIC):
            self._register_again(left, _CONCURRENT_S if code == errors.CONCURRENT_TRANSACTIONS else _AGAIN_S)
        elif code:
            self.abortable(errors.words(code))
        elif self.pending:
            self.register_after(0.001)
        client.wake()

    def end(self, *, is_commit: bool) -> None:
        """End the transaction as soon as the coordinator can be reached."""
        self._is_commit = is_commit
        self._end_s = self.client.now_s
        self.client.wake()

    def _send_end(self, node: Node) -> None:
        client = self.client
        self._end_s = NEVER
        version = node.speaks(frames.END_TXN, client.versions[frames.END_TXN])
        assert node.connection is not None
        assert client.transactional_id is not None
        if client.is_traced:
            client.note("commits" if self._is_commit else "aborts")

        def answered(frame: bytes | None) -> None:
            if self.state not in (State.COMMITTING, State.ABORTING):
                return
            code = errors.NETWORK
            if frame is not None:
                code = messages.end_txn_answer(frame, 0, len(frame), version).error_code
            self._ended(code)

        node.connection.ask(
            frames.end_txn(
                version, client.name, client.transactional_id, client.id.pid, commit=self._is_commit
            ),
            answered,
        )

    def _ended(self, code: int) -> None:
        """`rd_kafka_txn_handle_EndTxn`."""
        client = self.client
        if code in _MOVED:
            self.forget_coordinator()
        if code in (*_MOVED, *_LATER, errors.NETWORK):
            self._end_s = client.now_s + client.backoff_s(client.t.retry_backoff_s, 1.0, 0)
        elif code in _FATAL:
            client.is_of_no_use("fenced" if code in _FENCED else errors.words(code))
            self.answer_call(client.told.fatal)
        elif code == 0 and not self.needs_epoch:
            self.answer_call()
        elif code == 0 or (code in _NEEDS_EPOCH and not self._is_commit):
            client.id.bump(abort_first=False)
        else:
            if self.state is State.ABORTING:
                self.state = State.BEGIN_ABORT
            self.abortable(errors.words(code), needs_epoch=code in _NEEDS_EPOCH)
            self.answer_call(errors.words(code))
        client.wake()
