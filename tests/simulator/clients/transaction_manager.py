"""Java's `TransactionManager`, as far as kafka-python's is a port of it: the id, and the course of a transaction."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Container
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar

from tests.simulator.clients import errors
from tests.simulator.clients.one_at_a_time import Kind, OneAtATime, Request

if TYPE_CHECKING:
    from tests.simulator.clients.accumulator import Accumulator

_ADD_PARTITIONS_BACKOFF_S = 0.02
FENCED = (errors.STALE_EPOCH, errors.FENCED)


class State(Enum):
    """`TransactionState`; an idempotent one stays at the first three. A fatal error is the client's `told.fatal`."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    BUMPING = auto()
    """kafka-python: an idempotent one asks for another epoch."""


class TransactionManager(ABC):
    """The producer id, and what goes to the coordinator. A family says what is sent, and what an error leads to."""

    requests_class: ClassVar[type[OneAtATime]] = OneAtATime

    def __init__(self, client: Accumulator) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.state = State.UNINITIALIZED
        self.requests = self.requests_class(client, client.transactional_id, client.is_ready, self.answered)
        self.client = client
        self.last_error = ""
        self.is_started = False
        self._new: dict[int, None] = {}
        self._pending: set[int] = set()
        self.added: set[int] = set()

    @property
    def held(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    @property
    def is_on(self) -> bool:
        """It is a transactional producer's."""
        return self.client.transactional_id is not None

    def may_send_to(self, partition: int) -> bool:
        """`isSendToPartitionAllowed`."""
        return not self.is_on or partition in self.added

    # ---- the application -------------------------------------------------------------------------------

    async def init(self) -> str:
        """`initTransactions`."""
        client = self.client
        wait = client.begin_wait("start")
        self.state = State.INITIALIZING
        error = await self._wait_for(self.requests.put(Request(Kind.INIT_PRODUCER_ID)))
        wait.ended_s = client.now_s
        return error

    def begin(self) -> str:
        """`beginTransaction`."""
        client = self.client
        if self.state is not State.READY:
            return client.told.fatal or f"in state {self.state.name}"
        self.state = State.IN_TRANSACTION
        client.transaction_began()
        return ""

    def refuses_to_send(self) -> str:
        """Why the application cannot send now, if so."""
        if not self.is_on or self.state is State.IN_TRANSACTION:
            return ""
        return self.last_error or f"in state {self.state.name}"

    def add_partition(self, partition: int) -> None:
        """`maybeAddPartition`."""
        if self.is_on and partition not in self.added and partition not in self._pending:
            self._new[partition] = None

    async def complete(self, *, commit: bool) -> str:
        """`commitTransaction` and `abortTransaction`. Returns why it failed; the transaction notes it, too.

        kafka-python's wait without end; the schedule may have less patience.
        """
        client, transaction = self.client, self.client.transaction
        allowed = (State.IN_TRANSACTION,) if commit else (State.IN_TRANSACTION, State.ABORTABLE_ERROR)
        if transaction is None or self.state not in allowed or client.told.fatal:
            return client.told.fatal or self.last_error or f"in state {self.state.name}"
        wait = client.begin_wait("commit" if commit else "abort")
        self.state = State.COMMITTING if commit else State.ABORTING
        if not commit:
            self._new.clear()
        if self._new:
            self._enqueue_partitions()
        error = await self._wait_for(self.ask_for_end(commit=commit))
        client.transaction_ended(transaction, error, commit=commit)
        wait.ended_s = client.now_s
        return error

    def ask_for_end(self, *, commit: bool) -> Request:
        """Put what ends the transaction into the queue; return the last of it."""
        return self.requests.put(Request(Kind.END_TXN, self.held, commit=commit))

    async def _wait_for(self, request: Request) -> str:
        try:
            async with asyncio.timeout(self.client.t.max_block_s):
                return await asyncio.shield(request.done)
        except TimeoutError:
            return "timeout"

    # ---- the sender ------------------------------------------------------------------------------------

    @abstractmethod
    def serve(self, now_s: float) -> bool:
        """Send what is most urgent; True: nothing else may be sent now."""

    def next(self) -> Request | None:
        """`nextRequest`, which is in the queue no longer."""
        if self._new:
            self._enqueue_partitions()
        request = self.requests.peek()
        if request is None or (request.kind is Kind.END_TXN and self.client.open):
            return None
        self.requests.take()
        if self.state is State.ABORTABLE_ERROR and request.kind is not Kind.FIND_COORDINATOR:
            request.finish(self.last_error)
            return None
        if request.kind is Kind.END_TXN and not self.is_started:
            self.complete_transaction()
            request.finish()
            return self.requests.take()
        return request

    def _enqueue_partitions(self) -> None:
        self._pending.update(self._new)
        self._new.clear()
        self.requests.put(Request(Kind.ADD_PARTITIONS, self.held, partitions=tuple(sorted(self._pending))))

    # ---- answers ---------------------------------------------------------------------------------------

    @abstractmethod
    def answered(self, request: Request, frame: bytes, version: int) -> None:
        """Take the answer to a request."""

    @abstractmethod
    def complete_transaction(self) -> None:
        """`completeTransaction`."""

    @abstractmethod
    def failed(self, request: Request, code: int) -> None:
        """An answer with an error: try again, abort, or give up."""

    @abstractmethod
    def abortable(self, why: str) -> None:
        """`transitionToAbortableError`."""

    def partitions_added(self, request: Request, codes: dict[int, int], decided: Container[int]) -> None:
        """`AddPartitionsToTxnHandler`. `decided`: errors that `failed` knows what to do about."""
        for code in codes.values():
            if code == errors.CONCURRENT_TRANSACTIONS and not self.added:
                request.backoff_s = _ADD_PARTITIONS_BACKOFF_S
            if code in decided:
                self.failed(request, code)
                return
        self._pending.difference_update(codes)
        bad = next((code for code in codes.values() if code), 0)
        if bad:
            self.abortable(errors.words(bad))
            request.finish(errors.words(bad))
            return
        self.added.update(codes)
        self.is_started = True
        request.finish()

    def forget_partitions(self) -> None:
        """No partition belongs to the transaction."""
        self.is_started = False
        self._new.clear()
        self._pending.clear()
        self.added.clear()

    def has_id(self, producer_id: int, epoch: int) -> None:
        """Go on with the id of an answer."""
        self.producer_id, self.epoch = producer_id, epoch
        if self.client.is_traced:
            self.client.note(f"is {producer_id}, epoch {epoch}")
        self.state, self.last_error = State.READY, ""
