"""kafka-python's producer id and transactions (`producer/transaction_manager.py`), and what it loses of them."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from pidgate.protocol import messages
from tests.simulator.clients import errors, frames
from tests.simulator.clients.batches import Transaction
from tests.simulator.clients.kafka_python_requests import KafkaPythonRequests
from tests.simulator.clients.one_at_a_time import Kind, Request

if TYPE_CHECKING:
    from tests.simulator.clients.kafka_python import KafkaPythonProducer

_ADD_PARTITIONS_BACKOFF_S = 0.02
_FENCED = (errors.STALE_EPOCH, errors.FENCED)
RETRIABLE = errors.RETRIABLE - {2}
"""Its RetriableError; it leaves out CORRUPT_MESSAGE."""


class State(Enum):
    """`TransactionState`; a fatal error is the client's `told.fatal`."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    BUMPING = auto()


class KafkaPythonTransactions:
    """`TransactionManager`."""

    def __init__(self, client: KafkaPythonProducer) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.state = State.UNINITIALIZED
        self.requests = KafkaPythonRequests(client, client.transactional_id, client.is_ready, self._answered)
        self._client = client
        self._last_error = ""
        self._is_started = False
        self._new: dict[int, None] = {}
        self._pending: set[int] = set()
        self._added: set[int] = set()

    @property
    def held(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    @property
    def _is_on(self) -> bool:
        return self._client.transactional_id is not None

    def may_send_to(self, partition: int) -> bool:
        """`is_send_to_partition_allowed`."""
        return not self._is_on or partition in self._added

    # ---- the application -------------------------------------------------------------------------------

    async def init(self) -> str:
        """`init_transactions`."""
        client = self._client
        wait = client.begin_wait("start")
        self.state = State.INITIALIZING
        error = await self._wait_for(self.requests.put(Request(Kind.INIT_PRODUCER_ID)))
        wait.ended_s = client.now_s
        return error

    def begin(self) -> str:
        """`begin_transaction`."""
        client = self._client
        if self.state is not State.READY or client.told.fatal:
            return client.told.fatal or f"in state {self.state.name}"
        self.state = State.IN_TRANSACTION
        client.transaction = Transaction(len(client.told.transactions), client.now_s)
        client.told.transactions.append(client.transaction)
        return ""

    def refuses_to_send(self) -> str:
        if not self._is_on or self.state is State.IN_TRANSACTION:
            return ""
        return self._last_error or f"in state {self.state.name}"

    def add_partition(self, partition: int) -> None:
        """`maybe_add_partition_to_transaction`."""
        if self._is_on and partition not in self._added and partition not in self._pending:
            self._new[partition] = None

    async def complete(self, *, commit: bool) -> str:
        """`commit_transaction` and `abort_transaction`, which wait without end; the schedule may have less patience."""
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
        error = await self._wait_for(self.requests.put(Request(Kind.END_TXN, self.held, commit=commit)))
        transaction.error, transaction.ended_s = error, client.now_s
        if not error:
            transaction.outcome = "committed" if commit else "aborted"
            client.transaction = None
        wait.ended_s = client.now_s
        return error

    async def _wait_for(self, request: Request) -> str:
        return await self._client.patiently(request.done)

    # ---- Sender.run_once -------------------------------------------------------------------------------

    def serve(self, now_s: float) -> bool:
        """Send what is most urgent; True: nothing else may be sent now."""
        client, requests = self._client, self.requests
        if not self._is_on and self.producer_id < 0 and self.state is State.UNINITIALIZED:
            self.state = State.INITIALIZING
            requests.put(Request(Kind.INIT_PRODUCER_ID))
        if requests.is_busy(now_s):
            return True
        if self.state is State.ABORTING and client.open:
            client.abort_undrained(self._last_error or "aborted")
        request = self._next()
        if request is not None:
            requests.go(request, now_s)
            return True
        if self.producer_id < 0 or self.state is State.BUMPING:
            return True
        if self.state is State.ABORTABLE_ERROR:
            client.abort_undrained(self._last_error)
        return False

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
            request.finish()
            self._complete_transaction()
            return self.requests.take()
        return request

    def _enqueue_partitions(self) -> None:
        self._pending.update(self._new)
        self._new.clear()
        self.requests.put(Request(Kind.ADD_PARTITIONS, self.held, partitions=tuple(sorted(self._pending))))

    def reset_id(self) -> bool:
        """`reset_producer_id`: the id is gone, and as it is, no other one is asked for; not in transactions."""
        if self._is_on:
            return False
        self.producer_id = self.epoch = -1
        self._client.reset_sequences()
        return True

    def bump(self) -> None:
        """`bump_producer_id_and_epoch`."""
        if self.state is State.BUMPING or self._client.told.fatal:
            return
        self.state = State.BUMPING
        self._client.reset_sequences()
        self._forget_partitions()
        self.requests.put(Request(Kind.INIT_PRODUCER_ID, self.held))

    def _forget_partitions(self) -> None:
        self._is_started = False
        self._new.clear()
        self._pending.clear()
        self._added.clear()

    # ---- answers ---------------------------------------------------------------------------------------

    def _answered(self, request: Request, frame: bytes, version: int) -> None:
        if request.kind is Kind.FIND_COORDINATOR:
            found = frames.read_coordinator(frame, version)
            if found.error_code:
                self._failed(request, found.error_code)
            else:
                self.requests.coordinator = self._client.node_at(found.node_id, (found.host, found.port))
        elif request.kind is Kind.ADD_PARTITIONS:
            self._added_partitions(request, frames.read_add_partitions(frame, version))
        elif request.kind is Kind.END_TXN:
            code = messages.end_txn_answer(frame, 0, len(frame), version).error_code
            if code:
                self._failed(request, code)
            else:
                self._complete_transaction()
                request.finish()
        else:
            self._initialized(request, frame, version)

    def _initialized(self, request: Request, frame: bytes, version: int) -> None:
        answer = messages.init_producer_id_answer(frame, 0, len(frame), version)
        code, is_bump = answer.error_code, request.held != (-1, -1)
        if code == errors.STALE_EPOCH and is_bump:
            self.producer_id = self.epoch = -1
            self.requests.put(Request(Kind.INIT_PRODUCER_ID))
        elif code:
            self._failed(request, code)
        else:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            if self._client.is_traced:
                self._client.note(f"is {self.producer_id}, epoch {self.epoch}")
            self.state, self._last_error = State.READY, ""
            request.finish()

    def _added_partitions(self, request: Request, codes: dict[int, int]) -> None:
        for code in codes.values():
            if code == errors.CONCURRENT_TRANSACTIONS and not self._added:
                request.backoff_s = _ADD_PARTITIONS_BACKOFF_S
            if code in RETRIABLE or code in (*_FENCED, errors.TRANSACTION_FORBIDDEN, errors.INVALID_MAPPING):
                self._failed(request, code)
                return
        self._pending.difference_update(codes)
        bad = next((code for code in codes.values() if code), 0)
        if bad:
            self.abortable(errors.words(bad))
            request.finish(errors.words(bad))
            return
        self._added.update(codes)
        self._is_started = True
        request.finish()

    def _complete_transaction(self) -> None:
        self.state, self._last_error = State.READY, ""
        self._forget_partitions()

    def _failed(self, request: Request, code: int) -> None:
        if code in RETRIABLE:
            if code in (errors.NO_COORDINATOR, errors.NOT_COORDINATOR):
                self.requests.look_up()
            self.requests.retry(request)
        else:
            self._client.is_of_no_use("fenced" if code in _FENCED else errors.words(code))
            request.finish(self._client.told.fatal)

    def abortable(self, why: str) -> None:
        """`transition_to_abortable_error`."""
        if self.state in (State.IN_TRANSACTION, State.COMMITTING, State.BUMPING):
            self.state, self._last_error = State.ABORTABLE_ERROR, why
            self._client.wake()
