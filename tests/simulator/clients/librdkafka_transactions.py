"""librdkafka's transactions (`rdkafka_txnmgr.c`): partitions are registered, then EndTxn; version 1 of KIP-890."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING

from pidgate.protocol import messages
from tests.simulator.clients import errors, frames
from tests.simulator.clients.batches import State as BatchState
from tests.simulator.clients.batches import Transaction
from tests.simulator.clients.cluster import Node
from tests.simulator.clients.librdkafka_id import IdState
from tests.simulator.clients.turns import NEVER

if TYPE_CHECKING:
    from tests.simulator.clients.librdkafka import LibrdkafkaProducer
    from tests.simulator.clients.toppar import Toppar

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


class LibrdkafkaTransactions:
    """Of one producer; one that is not transactional sends as it likes."""

    def __init__(self, client: LibrdkafkaProducer) -> None:
        self.state = State.INIT
        self._client = client
        self._call: asyncio.Future[str] | None = None
        """The application waits for this."""
        self._error = ""
        self._needs_epoch = False
        self._requests = 0
        """AddPartitionsToTxn that may have been taken: without any there is nothing to end."""
        self._pending: dict[int, None] = {}
        self._asked: tuple[int, ...] = ()
        self._register_s = NEVER
        self._query_s = NEVER
        self._is_querying = False
        self._end_s = NEVER
        self._is_commit = False

    @property
    def _is_on(self) -> bool:
        return self._client.transactional_id is not None

    # ---- the application -------------------------------------------------------------------------------

    async def init(self) -> str:
        """`rd_kafka_init_transactions`."""
        self.state = State.WAIT_PID
        self._client.id.start(at_once=True)
        wait = self._client.begin_wait("start")
        error = await self._wait_for_call()
        wait.ended_s = self._client.now_s
        return error

    def begin(self) -> str:
        """`rd_kafka_begin_transaction`."""
        client = self._client
        if self.state is not State.READY or client.told.fatal:
            return client.told.fatal or f"in state {self.state.name}"
        self.state, self._error, self._requests = State.IN_TRANSACTION, "", 0
        client.transaction = Transaction(len(client.told.transactions), client.now_s)
        client.told.transactions.append(client.transaction)
        return ""

    def refuses_to_send(self) -> str:
        if not self._is_on or self.state is State.IN_TRANSACTION:
            return ""
        return self._error or f"in state {self.state.name}"

    def add_partition(self, toppar: Toppar) -> None:
        """To be registered with the coordinator before its first batch goes."""
        if self._is_on and not toppar.is_registered and toppar.partition not in self._asked:
            self._pending[toppar.partition] = None
            self._register_after(0.0)

    def may_send(self, toppar: Toppar) -> bool:
        """`rd_kafka_txn_may_send_msg` and `rd_kafka_txn_toppar_may_send_msg`."""
        if not self._is_on:
            return True
        return self.state in (State.IN_TRANSACTION, State.BEGIN_COMMIT) and toppar.is_registered

    async def commit(self) -> str:
        """`rd_kafka_commit_transaction`."""
        return await self._complete(is_commit=True)

    async def abort(self) -> str:
        """`rd_kafka_abort_transaction`."""
        return await self._complete(is_commit=False)

    async def _complete(self, *, is_commit: bool) -> str:
        client, transaction = self._client, self._client.transaction
        allowed: tuple[State, ...] = (State.IN_TRANSACTION, State.BEGIN_COMMIT, State.COMMITTING)
        if not is_commit:
            allowed = (State.IN_TRANSACTION, State.ABORTABLE_ERROR, State.BEGIN_ABORT, State.ABORTING)
        if transaction is None or self.state not in allowed or client.told.fatal:
            return client.told.fatal or self._error or f"in state {self.state.name}"
        wait = client.begin_wait("commit" if is_commit else "abort")
        try:
            async with asyncio.timeout(client.t.max_block_s):
                error = await (self._commit(transaction) if is_commit else self._abort())
        except TimeoutError:
            error = "timeout"
        wait.ended_s = transaction.ended_s = client.now_s
        transaction.error = error
        if not error:
            transaction.outcome = "committed" if is_commit else "aborted"
            self._completed()
        return error

    async def _commit(self, transaction: Transaction) -> str:
        if self.state is State.IN_TRANSACTION:
            self.state = State.BEGIN_COMMIT
        await self._flush()
        if self.state is State.BEGIN_COMMIT:
            if any(batch.state is BatchState.FAILED for batch in transaction.batches):
                self.abortable("messages failed delivery")
            elif not self._requests:
                return ""
            else:
                self.state = State.COMMITTING
                self._end(is_commit=True)
        if self.state is State.ABORTABLE_ERROR:
            return self._error
        return await self._wait_for_call()

    async def _abort(self) -> str:
        if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            self.state = State.BEGIN_ABORT
            self._pending.clear()
        self._client.purge("aborted", is_abort=True)
        await self._flush()
        if self.state is State.BEGIN_ABORT:
            if not self._requests and not self._needs_epoch:
                return ""
            if not self._requests:
                self._client.id.bump(abort_first=False)
            elif self._client.id.state in (IdState.ASSIGNED, IdState.WAIT_TXN_ABORT):
                self.state = State.ABORTING
                self._end(is_commit=False)
        return await self._wait_for_call()

    async def _flush(self) -> None:
        for batch in list(self._client.open):
            await batch.wait()

    async def _wait_for_call(self) -> str:
        client = self._client
        if client.told.fatal:
            return client.told.fatal
        if self._call is None or self._call.done():
            self._call = client.loop.create_future()
        try:
            async with asyncio.timeout(client.t.max_block_s):
                return await asyncio.shield(self._call)
        except TimeoutError:
            return "timeout"

    def _answer_call(self, error: str = "") -> None:
        if self._call is not None and not self._call.done():
            self._call.set_result(error)

    def _completed(self) -> None:
        self.state, self._needs_epoch, self._requests = State.READY, False, 0
        self._client.transaction = None
        self._pending.clear()
        for toppar in self._client.toppars.values():
            toppar.is_registered = False

    # ---- what others report ----------------------------------------------------------------------------

    def id_changed(self, state: IdState) -> None:
        """`rd_kafka_txn_idemp_state_change`."""
        if state is IdState.FATAL:
            self._answer_call(self._client.told.fatal)
        elif state is IdState.ASSIGNED:
            if self.state is State.WAIT_PID:
                self.state = State.READY
                self._answer_call()
            elif self.state in (State.BEGIN_ABORT, State.ABORTING):
                self._answer_call()

    def abortable(self, why: str, *, needs_epoch: bool = False) -> None:
        """`rd_kafka_txn_set_abortable_error`: all that waits fails, and the application has to abort."""
        client = self._client
        self._needs_epoch = self._needs_epoch or needs_epoch
        if client.told.fatal or self._error:
            return
        self._error = why
        if self.state not in (State.BEGIN_ABORT, State.ABORTING):
            self.state = State.ABORTABLE_ERROR
            self._answer_call(why)
        client.purge("aborted", is_abort=True)
        client.wake()

    # ---- requests --------------------------------------------------------------------------------------

    def serve(self, now_s: float) -> None:
        """Send what is due."""
        client = self._client
        if not self._is_on:
            return
        if client.told.fatal:
            self._answer_call(client.told.fatal)
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
        node = self._client.nodes.pop(COORDINATOR, None)
        if node is not None and node.connection is not None:
            node.connection.close("no coordinator")
        self._client.wake()

    def reachable_coordinator(self) -> Node | None:
        """To ask it for an id; None while it is not connected."""
        node = self._client.nodes.get(COORDINATOR)
        return node if node is not None and node.is_up else None

    def _query(self, now_s: float) -> None:
        """`rd_kafka_txn_coord_query`."""
        client = self._client
        if self._is_querying:
            return
        if self._query_s != NEVER and now_s < self._query_s:
            client.wake_at(self._query_s)
            return
        up = [node for node in client.known_nodes() if client.can_ask(node, now_s)]
        if not up:
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

    def _register_after(self, for_s: float) -> None:
        self._register_s = self._client.now_s + for_s
        self._client.wake()

    def _register(self, node: Node) -> None:
        """`rd_kafka_txn_register_partitions`."""
        client = self._client
        self._register_s = NEVER
        if self.state not in (State.IN_TRANSACTION, State.BEGIN_COMMIT) or not self._pending or self._asked:
            return
        self._asked = tuple(sorted(self._pending))
        self._pending.clear()
        self._requests += 1
        version = node.speaks(frames.ADD_PARTITIONS, client.versions[frames.ADD_PARTITIONS])
        assert node.connection is not None
        assert client.transactional_id is not None
        if client.is_traced:
            client.note(f"adds {self._asked} to its transaction")

        def answered(frame: bytes | None) -> None:
            asked, self._asked = self._asked, ()
            if self.state not in (State.IN_TRANSACTION, State.BEGIN_COMMIT):
                return
            if frame is None:
                self._register_again(asked, _AGAIN_S)
            else:
                self._registered(asked, frames.read_add_partitions(frame, version))

        client_frame = frames.add_partitions(
            version, client.name, client.transactional_id, client.id.pid, client.topic, self._asked
        )
        node.connection.ask(client_frame, answered)

    def _register_again(self, partitions: tuple[int, ...], for_s: float) -> None:
        self._pending.update(dict.fromkeys(partitions))
        self._register_after(for_s)

    def _registered(self, asked: tuple[int, ...], codes: dict[int, int]) -> None:
        client = self._client
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
        elif self._pending:
            self._register_after(0.001)
        client.wake()

    def _end(self, *, is_commit: bool) -> None:
        self._is_commit = is_commit
        self._end_s = self._client.now_s
        self._client.wake()

    def _send_end(self, node: Node) -> None:
        client = self._client
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
        client = self._client
        if code in _MOVED:
            self.forget_coordinator()
        if code in (*_MOVED, *_LATER, errors.NETWORK):
            self._end_s = client.now_s + client.backoff_s(client.t.retry_backoff_s, 1.0, 0)
        elif code in _FATAL:
            client.is_of_no_use("fenced" if code in _FENCED else errors.words(code))
            self._answer_call(client.told.fatal)
        elif code == 0 and not self._needs_epoch:
            self._answer_call()
        elif code == 0 or (code in _NEEDS_EPOCH and not self._is_commit):
            client.id.bump(abort_first=False)
        else:
            if self.state is State.ABORTING:
                self.state = State.BEGIN_ABORT
            self.abortable(errors.words(code), needs_epoch=code in _NEEDS_EPOCH)
            self._answer_call(errors.words(code))
        client.wake()
