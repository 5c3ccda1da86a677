"""kafka-python's producer id and transactions (`producer/transaction_manager.py`), and what it loses of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pidgate.protocol import messages
from tests.simulator.clients import errors, frames
from tests.simulator.clients.kafka_python_requests import KafkaPythonRequests
from tests.simulator.clients.one_at_a_time import Kind, Request
from tests.simulator.clients.transaction_manager import FENCED, State, TransactionManager

if TYPE_CHECKING:
    from tests.simulator.clients.kafka_python import KafkaPythonProducer

RETRIABLE = errors.RETRIABLE - {2}
"""Its RetriableError; it leaves out CORRUPT_MESSAGE."""


_DECIDED = RETRIABLE | {*FENCED, errors.TRANSACTION_FORBIDDEN, errors.INVALID_MAPPING}


class KafkaPythonTransactions(TransactionManager):
    """`TransactionManager`."""

    client: KafkaPythonProducer
    requests_class = KafkaPythonRequests

    def begin(self) -> str:
        return self.client.told.fatal or super().begin()

    # ---- Sender.run_once -------------------------------------------------------------------------------

    def serve(self, now_s: float) -> bool:
        client, requests = self.client, self.requests
        if not self.is_on and self.producer_id < 0 and self.state is State.UNINITIALIZED:
            self.state = State.INITIALIZING
            requests.put(Request(Kind.INIT_PRODUCER_ID))
        if requests.is_busy(now_s):
            return True
        if self.state is State.ABORTING and client.open:
            client.abort_undrained(self.last_error or "aborted")
        request = self.next()
        if request is not None:
            requests.go(request, now_s)
            return True
        if self.producer_id < 0 or self.state is State.BUMPING:
            return True
        if self.state is State.ABORTABLE_ERROR:
            client.abort_undrained(self.last_error)
        return False

    def reset_id(self) -> bool:
        """`reset_producer_id`: the id is gone, and as it is, no other one is asked for; not in transactions."""
        if self.is_on:
            return False
        self.producer_id = self.epoch = -1
        self.client.reset_sequences()
        return True

    def bump(self) -> None:
        """`bump_producer_id_and_epoch`."""
        if self.state is State.BUMPING or self.client.told.fatal:
            return
        self.state = State.BUMPING
        self.client.reset_sequences()
        self.forget_partitions()
        self.requests.put(Request(Kind.INIT_PRODUCER_ID, self.held))

    # ---- answers ---------------------------------------------------------------------------------------

    def answered(self, request: Request, frame: bytes, version: int) -> None:
        if request.kind is Kind.FIND_COORDINATOR:
            found = frames.read_coordinator(frame, version)
            if found.error_code:
                self.failed(request, found.error_code)
            else:
                self.requests.coordinator = self.client.node_at(found.node_id, (found.host, found.port))
        elif request.kind is Kind.ADD_PARTITIONS:
            self.partitions_added(request, frames.read_add_partitions(frame, version), _DECIDED)
        elif request.kind is Kind.END_TXN:
            code = messages.end_txn_answer(frame, 0, len(frame), version).error_code
            if code:
                self.failed(request, code)
            else:
                self.complete_transaction()
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
            self.failed(request, code)
        else:
            self.has_id(answer.producer_id, answer.producer_epoch)
            request.finish()

    def complete_transaction(self) -> None:
        self.state, self.last_error = State.READY, ""
        self.forget_partitions()

    def failed(self, request: Request, code: int) -> None:
        if code in RETRIABLE:
            if code in (errors.NO_COORDINATOR, errors.NOT_COORDINATOR):
                self.requests.look_up()
            self.requests.retry(request)
        else:
            self.client.is_of_no_use("fenced" if code in FENCED else errors.words(code))
            request.finish(self.client.told.fatal)

    def abortable(self, why: str) -> None:
        if self.state in (State.IN_TRANSACTION, State.COMMITTING, State.BUMPING):
            self.state, self.last_error = State.ABORTABLE_ERROR, why
            self.client.wake()
