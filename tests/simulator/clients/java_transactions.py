"""The Java producer's id and transactions: `TransactionManager`, with transactions of version 1 and 2 (KIP-890)."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING

from pidgate.protocol import messages
from tests.simulator.clients import errors, frames
from tests.simulator.clients.batches import Transaction
from tests.simulator.clients.one_at_a_time import Kind, OneAtATime, Request

if TYPE_CHECKING:
    from tests.simulator.clients.java_accumulator import JavaAccumulator

_ADD_PARTITIONS_BACKOFF_S = 0.02
_PRODUCE_BEFORE_V2, _END_TXN_BEFORE_V2 = 11, 4
_FENCED = (errors.STALE_EPOCH, errors.FENCED)


class State(Enum):
    """Of a transactional producer; an idempotent one stays at the first three."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()


class JavaTransactions:
    """The producer id, and what goes to the coordinator."""

    def __init__(self, client: JavaAccumulator) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.state = State.UNINITIALIZED
        self.is_v2 = False
        self.requests = OneAtATime(client, client.transactional_id, client.is_ready, self._answered)
        self._client = client
        self._last_error = ""
        self._is_started = False
        self._new: dict[int, None] = {}
        self._pending: set[int] = set()
        self._added: set[int] = set()

    @property
    def held(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def may_send_to(self, partition: int) -> bool:
        """`isSendToPartitionAllowed`."""
        return self._client.transactional_id is None or partition in self._added

    def forget_id(self) -> None:
        """Ask for another id."""
        self.producer_id = self.epoch = -1
        self.state = State.UNINITIALIZED

    # ---- the application -------------------------------------------------------------------------------

    async def init(self) -> str:
        """`initTransactions`."""
        client = self._client
        wait = client.begin_wait("start")
        self.state = State.INITIALIZING
        error = await self._wait_for(self.requests.put(Request(Kind.INIT_PRODUCER_ID)))
        wait.ended_s = client.now_s
        return error

    def begin(self) -> str:
        """`beginTransaction`."""
        client = self._client
        if self.state is not State.READY:
            return client.told.fatal or f"in state {self.state.name}"
        self.update_version()
        self.state = State.IN_TRANSACTION
        client.transaction = Transaction(len(client.told.transactions), client.now_s)
        client.told.transactions.append(client.transaction)
        return ""

    def refuses_to_send(self) -> str:
        if self._client.transactional_id is None or self.state is State.IN_TRANSACTION:
            return ""
        return self._last_error or f"in state {self.state.name}"

    def add_partition(self, partition: int) -> None:
        """`maybeAddPartition`."""
        if self._client.transactional_id is None or partition in self._added:
            return
        if self.is_v2:
            self._added.add(partition)
            self._is_started = True
        elif partition not in self._pending:
            self._new[partition] = None

    async def complete(self, *, commit: bool) -> str:
        """`commitTransaction` and `abortTransaction`. Returns why it failed; the transaction notes it, too."""
        client, transaction = self._client, self._client.transaction
        allowed = (State.IN_TRANSACTION,) if commit else (State.IN_TRANSACTION, State.ABORTABLE_ERROR)
        if transaction is None or self.state not in allowed or client.told.fatal:
            return client.told.fatal or self._last_error or f"in state {self.state.name}"
        wait = client.begin_wait("commit" if commit else "abort")
        self.state = State.COMMITTING if commit else State.ABORTING
        if not commit:
            self._new.clear()
        if self._new:
            self._enqueue_partitions()
        request = self.requests.put(Request(Kind.END_TXN, self.held, commit=commit))
        if client.wants_epoch:
            request = self.requests.put(Request(Kind.EPOCH_BUMP, self.held))
        error = await self._wait_for(request)
        transaction.error, transaction.ended_s = error, client.now_s
        if not error:
            transaction.outcome = "committed" if commit else "aborted"
            client.transaction = None
        wait.ended_s = client.now_s
        return error

    async def finish_up(self) -> None:
        """On close an open transaction is aborted."""
        if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR) and not self._client.told.fatal:
            await self.complete(commit=False)

    async def _wait_for(self, request: Request) -> str:
        try:
            async with asyncio.timeout(self._client.t.max_block_s):
                return await asyncio.shield(request.done)
        except TimeoutError:
            return "timeout"

    # ---- Sender.maybeSendAndPollTransactionalRequest ---------------------------------------------------

    def serve(self, now_s: float) -> bool:
        """Send what is most urgent; True: nothing else may be sent now."""
        client, requests = self._client, self.requests
        if client.transactional_id is None and self.producer_id < 0 and self.state is State.UNINITIALIZED:
            self.state = State.INITIALIZING
            requests.put(Request(Kind.INIT_PRODUCER_ID))
        if requests.is_busy(now_s):
            return True
        if self.state in (State.ABORTABLE_ERROR, State.ABORTING) and client.open:
            client.abort_undrained(self._last_error or "aborted")
        request = self._next()
        if request is None:
            return False
        requests.go(request, now_s)
        return True

    def _next(self) -> Request | None:
        if self._new:
            self._enqueue_partitions()
        request = self.requests.peek()
        if request is None or (request.kind is Kind.END_TXN and self._client.open):
            return None
        self.requests.take()
        if self.state is State.ABORTABLE_ERROR and request.kind is not Kind.FIND_COORDINATOR:
            request.finish(self._last_error)
            return None
        if request.kind is Kind.END_TXN and not self._is_started:
            self._complete_transaction()
            request.finish()
            return self.requests.take()
        return request

    def _enqueue_partitions(self) -> None:
        self._pending.update(self._new)
        self._new.clear()
        self.requests.put(Request(Kind.ADD_PARTITIONS, self.held, partitions=tuple(sorted(self._pending))))

    # ---- answers ---------------------------------------------------------------------------------------

    def _answered(self, request: Request, frame: bytes, version: int) -> None:
        if request.kind is Kind.FIND_COORDINATOR:
            self._found(request, frame, version)
        elif request.kind is Kind.ADD_PARTITIONS:
            self._added_partitions(request, frame, version)
        elif request.kind is Kind.END_TXN:
            self._ended(request, frame, version)
        else:
            self._initialized(request, frame, version)

    def _found(self, request: Request, frame: bytes, version: int) -> None:
        found = frames.read_coordinator(frame, version)
        if found.error_code == 0:
            self.requests.coordinator = self._client.node_at(found.node_id, (found.host, found.port))
            request.finish()
        else:
            self._failed(request, found.error_code)

    def _initialized(self, request: Request, frame: bytes, version: int) -> None:
        answer = messages.init_producer_id_answer(frame, 0, len(frame), version)
        if answer.error_code:
            self._failed(request, answer.error_code)
            return
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        if self._client.is_traced:
            self._client.note(f"is {self.producer_id}, epoch {self.epoch}")
        self.state, self._last_error = State.READY, ""
        self.update_version()
        if request.kind is Kind.EPOCH_BUMP:
            self._client.reset_sequences()
        request.finish()

    def _added_partitions(self, request: Request, frame: bytes, version: int) -> None:
        codes = frames.read_add_partitions(frame, version)
        for code in codes.values():
            if code == errors.CONCURRENT_TRANSACTIONS and not self._added:
                request.backoff_s = _ADD_PARTITIONS_BACKOFF_S
            if code in errors.RETRIABLE or code in (*_FENCED, *_FATAL, *_ABORTABLE):
                self._failed(request, code)
                return
        self._pending.difference_update(codes)
        bad = next((code for code in codes.values() if code), 0)
        if bad:
            self._abortable(errors.words(bad))
            request.finish(errors.words(bad))
            return
        self._added.update(codes)
        self._is_started = True
        request.finish()

    def _ended(self, request: Request, frame: bytes, version: int) -> None:
        answer = messages.end_txn_answer(frame, 0, len(frame), version)
        if answer.error_code:
            self._failed(request, answer.error_code)
            return
        if answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._client.reset_sequences()
        self._complete_transaction()
        request.finish()

    def _complete_transaction(self) -> None:
        self.state = State.INITIALIZING if self._client.wants_epoch else State.READY
        self._last_error = ""
        self._client.wants_epoch = self._is_started = False
        self._new.clear()
        self._pending.clear()
        self._added.clear()

    # ---- errors ----------------------------------------------------------------------------------------

    def _failed(self, request: Request, code: int) -> None:
        """An answer with an error: try again, abort, or give up."""
        if code in (errors.NO_COORDINATOR, errors.NOT_COORDINATOR):
            self.requests.look_up()
            self.requests.retry(request)
        elif code in errors.RETRIABLE:
            self.requests.retry(request)
        elif code in _ABORTABLE:
            self._client.wants_epoch = self._client.wants_epoch or not self.is_v2
            self._abortable(errors.words(code))
            request.finish(errors.words(code))
        else:
            self._client.is_of_no_use("fenced" if code in _FENCED else errors.words(code))
            request.finish(self._client.told.fatal)

    def batch_failed(self, code: int) -> None:
        """`maybeTransitionToErrorState`."""
        if code in (errors.CLUSTER_FORBIDDEN, errors.TRANSACTION_FORBIDDEN, errors.FENCED):
            self._client.is_of_no_use(errors.words(code))
        elif self._client.transactional_id is not None:
            if not self.is_v2 and self.state not in (State.COMMITTING, State.ABORTING):
                self._client.wants_epoch = True
            self._abortable(errors.words(code))

    def sequences_are_lost(self) -> None:
        """Not known what the broker has: the transaction has to be aborted."""
        if not self.is_v2:
            self._client.wants_epoch = True
        self._abortable("unacknowledged messages")

    def _abortable(self, why: str) -> None:
        if self.state is not State.ABORTING:
            self.state, self._last_error = State.ABORTABLE_ERROR, why
            self._client.wake()

    def update_version(self) -> None:
        """Version 2 holds from the next transaction on; without it, older versions of two APIs are used."""
        client = self._client
        if client.transactional_id is None:
            return
        connections = [node.connection for node in client.nodes.values() if node.connection is not None]
        self.is_v2 = any(connection.offered.transaction_version >= 2 for connection in connections)
        before = {frames.PRODUCE: _PRODUCE_BEFORE_V2, frames.END_TXN: _END_TXN_BEFORE_V2}
        for api_key, newest in before.items():
            client.versions[api_key] = (
                client.spoken[api_key] if self.is_v2 else min(client.spoken[api_key], newest)
            )


_FATAL = frozenset({errors.TRANSACTION_FORBIDDEN, errors.INVALID_STATE})
_ABORTABLE = frozenset({errors.UNKNOWN_PRODUCER_ID, errors.INVALID_MAPPING, errors.TRANSACTION_ABORTABLE})
