"""The Java producer's id and transactions: `TransactionManager`, with transactions of version 1 and 2 (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pidgate.protocol import messages
from tests.simulator.clients import errors, frames
from tests.simulator.clients.one_at_a_time import Kind, Request
from tests.simulator.clients.transaction_manager import FENCED, State, TransactionManager

if TYPE_CHECKING:
    from tests.simulator.clients.java_accumulator import JavaAccumulator

_PRODUCE_BEFORE_V2, _END_TXN_BEFORE_V2 = 11, 4


class JavaTransactions(TransactionManager):
    """`TransactionManager`."""

    client: JavaAccumulator

    def __init__(self, client: JavaAccumulator) -> None:
        super().__init__(client)
        self.is_v2 = False

    def forget_id(self) -> None:
        """Ask for another id."""
        self.producer_id = self.epoch = -1
        self.state = State.UNINITIALIZED

    # ---- the application -------------------------------------------------------------------------------

    def add_partition(self, partition: int) -> None:
        if self.is_on and self.is_v2:
            self.added.add(partition)
            self.is_started = True
        else:
            super().add_partition(partition)

    def ask_for_end(self, *, commit: bool) -> Request:
        request = super().ask_for_end(commit=commit)
        # It ends as it has begun; the next transaction is of the version that brokers offer now, under a new epoch.
        request.newest = self.client.versions[frames.END_TXN]
        was_v2 = self.is_v2
        self.update_version()
        if self.is_v2 and not was_v2:
            self.client.wants_epoch = True
        if self.client.wants_epoch:
            request = self.requests.put(Request(Kind.EPOCH_BUMP, self.held))
        return request

    async def finish_up(self) -> None:
        """On close an open transaction is aborted."""
        if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR) and not self.client.told.fatal:
            await self.complete(commit=False)

    # ---- Sender.maybeSendAndPollTransactionalRequest ---------------------------------------------------

    def serve(self, now_s: float) -> bool:
        client, requests = self.client, self.requests
        if client.transactional_id is None and self.producer_id < 0 and self.state is State.UNINITIALIZED:
            self.state = State.INITIALIZING
            requests.put(Request(Kind.INIT_PRODUCER_ID))
        if requests.is_busy(now_s):
            return True
        if self.state in (State.ABORTABLE_ERROR, State.ABORTING) and client.open:
            client.abort_undrained(self.last_error or "aborted")
        request = self.next()
        if request is None:
            return False
        requests.go(request, now_s)
        return True

    # ---- answers ---------------------------------------------------------------------------------------

    def answered(self, request: Request, frame: bytes, version: int) -> None:
        if request.kind is Kind.FIND_COORDINATOR:
            self._found(request, frame, version)
        elif request.kind is Kind.ADD_PARTITIONS:
            self.partitions_added(request, frames.read_add_partitions(frame, version), _DECIDED)
        elif request.kind is Kind.END_TXN:
            self._ended(request, frame, version)
        else:
            self._initialized(request, frame, version)

    def _found(self, request: Request, frame: bytes, version: int) -> None:
        found = frames.read_coordinator(frame, version)
        if found.error_code == 0:
            self.requests.coordinator = self.client.node_at(found.node_id, (found.host, found.port))
            request.finish()
        else:
            self.failed(request, found.error_code)

    def _initialized(self, request: Request, frame: bytes, version: int) -> None:
        answer = messages.init_producer_id_answer(frame, 0, len(frame), version)
        if answer.error_code:
            self.failed(request, answer.error_code)
            return
        self.has_id(answer.producer_id, answer.producer_epoch)
        self.update_version()
        if request.kind is Kind.EPOCH_BUMP:
            self.client.reset_sequences()
        request.finish()

    def _ended(self, request: Request, frame: bytes, version: int) -> None:
        answer = messages.end_txn_answer(frame, 0, len(frame), version)
        if answer.error_code:
            self.failed(request, answer.error_code)
            return
        if answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.client.reset_sequences()
        self.complete_transaction()
        request.finish()

    def complete_transaction(self) -> None:
        self.state = State.INITIALIZING if self.client.wants_epoch else State.READY
        self.last_error = ""
        self.client.wants_epoch = False
        self.forget_partitions()

    # ---- errors ----------------------------------------------------------------------------------------

    def failed(self, request: Request, code: int) -> None:
        if code in (errors.NO_COORDINATOR, errors.NOT_COORDINATOR):
            self.requests.look_up()
            self.requests.retry(request)
        elif code in errors.RETRIABLE:
            self.requests.retry(request)
        elif code in _ABORTABLE:
            self.client.wants_epoch = self.client.wants_epoch or not self.is_v2
            self.abortable(errors.words(code))
            request.finish(errors.words(code))
        else:
            self.client.is_of_no_use("fenced" if code in FENCED else errors.words(code))
            request.finish(self.client.told.fatal)

    def batch_failed(self, code: int) -> None:
        """`maybeTransitionToErrorState`."""
        if code in (errors.CLUSTER_FORBIDDEN, errors.TRANSACTION_FORBIDDEN, errors.FENCED):
            self.client.is_of_no_use(errors.words(code))
        elif self.client.transactional_id is not None:
            if not self.is_v2 and self.state not in (State.COMMITTING, State.ABORTING):
                self.client.wants_epoch = True
            self.abortable(errors.words(code))

    def sequences_are_lost(self) -> None:
        """Not known what the broker has: the transaction has to be aborted."""
        if not self.is_v2:
            self.client.wants_epoch = True
        self.abortable("unacknowledged messages")

    def abortable(self, why: str) -> None:
        if self.state is not State.ABORTING:
            self.state, self.last_error = State.ABORTABLE_ERROR, why
            self.client.wake()

    def update_version(self) -> None:
        """Version 2 holds from the next transaction on; without it, older versions of two APIs are used."""
        client = self.client
        if client.transactional_id is None:
            return
        connections = [node.connection for node in client.nodes.values() if node.connection is not None]
        # What brokers have offered is kept while none can be reached.
        self.is_v2 = self.is_v2 or any(
            connection.offered.transaction_version >= 2 for connection in connections
        )
        before = {frames.PRODUCE: _PRODUCE_BEFORE_V2, frames.END_TXN: _END_TXN_BEFORE_V2}
        for api_key, newest in before.items():
            client.versions[api_key] = (
                client.spoken[api_key] if self.is_v2 else min(client.spoken[api_key], newest)
            )


_ABORTABLE = frozenset({errors.UNKNOWN_PRODUCER_ID, errors.INVALID_MAPPING, errors.TRANSACTION_ABORTABLE})
_DECIDED = errors.RETRIABLE | _ABORTABLE | {*FENCED, errors.TRANSACTION_FORBIDDEN, errors.INVALID_STATE}
