"""The transaction coordinator, as Kafka 4.3 decides: who owns a transactional id, and how transactions begin and end.

Kafka: coordinator/transaction/TransactionCoordinator, TransactionMetadata, TransactionStateManager.
The transaction log is written and replicated at once here; what takes time is the markers. While they are under way a
transaction is pending, and whoever asks about it gets CONCURRENT_TRANSACTIONS. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from tests.simulator.brokers.transaction import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    OK,
    Identity,
    State,
    TopicPartition,
    Transaction,
)

MOST_TIMEOUT_MS: Final = 900_000
"""transaction.max.timeout.ms."""
TIMEOUT_CHECK_MS: Final = 10_000
"""transaction.abort.timed.out.transaction.cleanup.interval.ms."""


class Coordinator:
    """All transactions of one partition of __transaction_state, at whichever node leads it."""

    def __init__(
        self,
        new_producer_id: Callable[[], int | None],
        begin: Callable[[Transaction], None],
        end: Callable[[Transaction], None],
        *,
        is_v2: bool = True,
    ) -> None:
        """`begin`: a transaction has begun. `end`: one is prepared, `complete` is wanted when its markers are written.

        `is_v2`: the feature transaction.version is 2 (KIP-890), so what the coordinator aborts itself bumps the epoch.
        """
        self.transactions: dict[str, Transaction] = {}
        self._new_producer_id = new_producer_id
        self._begin = begin
        self._end = end
        self._is_v2 = is_v2

    # ---- InitProducerId ----------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> Identity:
        """TransactionCoordinator.handleInitProducerId. `expected`: the id and epoch that the client has (KIP-360)."""
        if not transactional_id:
            return Identity(ErrorCode.invalid_request)
        if not 0 < timeout_ms <= MOST_TIMEOUT_MS:
            return Identity(ErrorCode.invalid_transaction_timeout)
        found = self.transactions.get(transactional_id)
        if found is None:
            producer_id = self._new_producer_id()
            if producer_id is None:
                return Identity(ErrorCode.coordinator_load_in_progress)
            found = Transaction(transactional_id, producer_id, timeout_ms)
            self.transactions[transactional_id] = found
        if found.is_pending:
            return Identity(ErrorCode.concurrent_transactions)
        if expected is not None and not _is_owner(found, *expected):
            return Identity(ErrorCode.producer_fenced)
        if found.state is State.ONGOING:
            # The transaction is aborted under a higher epoch, which no client is given: the client asks again.
            error = self._fence(found)
            return Identity(ErrorCode.concurrent_transactions if error is OK else error)
        error = self._new_epoch(found, expected)
        if error is not OK:
            return Identity(error)
        found.timeout_ms, found.started_ms, found.state = timeout_ms, -1, State.EMPTY
        found.partitions = {}
        return Identity(OK, found.producer_id, found.epoch)

    def _new_epoch(self, found: Transaction, expected: tuple[int, int] | None) -> ErrorCode:
        """TransactionMetadata.prepareProducerIdRotation and prepareIncrementProducerEpoch."""
        epoch = None if expected is None else expected[1]
        if found.is_exhausted:
            if epoch is not None and epoch != found.epoch:
                return ErrorCode.unknown_server_error  # an IllegalStateException
            producer_id = self._new_producer_id()
            if producer_id is None:
                return ErrorCode.coordinator_load_in_progress
            found.previous_producer_id, found.producer_id = found.producer_id, producer_id
            found.last_epoch, found.epoch = NO_EPOCH if epoch is None else found.epoch, 0
            return OK
        if epoch is None:
            found.last_epoch, found.epoch = NO_EPOCH, found.epoch + 1
        elif epoch == found.epoch or found.epoch == NO_EPOCH:
            found.last_epoch, found.epoch = found.epoch, found.epoch + 1
        elif epoch != found.last_epoch:
            return ErrorCode.producer_fenced
        # Equal to the last epoch: the answer to a successful call was lost, it is given again.
        found.previous_producer_id = found.producer_id
        return OK

    # ---- partitions --------------------------------------------------------------------------------------

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        now_ms: int,
    ) -> ErrorCode:
        """TransactionCoordinator.handleAddPartitionsToTransaction."""
        found, error = self._current(transactional_id, producer_id, epoch)
        if found is None:
            return error
        if found.state is not State.ONGOING:
            found.state, found.started_ms, found.partitions = State.ONGOING, now_ms, {}
            self._begin(found)
        found.partitions.update(dict.fromkeys(partitions))
        found.previous_producer_id = found.producer_id
        return OK

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """TransactionCoordinator.handleVerifyPartitionsInTransaction."""
        found, error = self._current(transactional_id, producer_id, epoch, asks_pending_first=False)
        if found is None:
            return dict.fromkeys(partitions, error)
        missing = ErrorCode.transaction_abortable
        return {partition: OK if partition in found.partitions else missing for partition in partitions}

    def _current(
        self, transactional_id: str, producer_id: int, epoch: int, *, asks_pending_first: bool = True
    ) -> tuple[Transaction | None, ErrorCode]:
        if not transactional_id:
            return None, ErrorCode.invalid_request
        found = self.transactions.get(transactional_id)
        if found is None:
            return None, ErrorCode.invalid_producer_id_mapping
        if asks_pending_first and found.is_pending:
            return None, ErrorCode.concurrent_transactions
        if found.producer_id != producer_id:
            return None, ErrorCode.invalid_producer_id_mapping
        if found.epoch != epoch:
            return None, ErrorCode.producer_fenced
        if found.is_pending:
            return None, ErrorCode.concurrent_transactions
        return found, OK

    # ---- EndTxn ------------------------------------------------------------------------------------------

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, now_ms: int, *, commit: bool, is_v2: bool
    ) -> Identity:
        """TransactionCoordinator.endTransaction for a client: EndTxn v5 (`is_v2`), or an older one."""
        if not transactional_id:
            return Identity(ErrorCode.invalid_request)
        found = self.transactions.get(transactional_id)
        if found is None:
            return Identity(ErrorCode.invalid_producer_id_mapping)
        if is_v2:
            return self._end_v2(found, producer_id, epoch, now_ms, commit=commit)
        return self._end_v1(found, producer_id, epoch, commit=commit)

    def _end_v1(self, found: Transaction, producer_id: int, epoch: int, *, commit: bool) -> Identity:
        """TransactionCoordinator.endTransactionWithTV1."""
        if found.producer_id != producer_id:
            return Identity(ErrorCode.invalid_producer_id_mapping)
        if found.epoch != epoch:
            return Identity(ErrorCode.producer_fenced)
        if found.is_pending:
            return Identity(ErrorCode.concurrent_transactions)
        if found.state is State.ONGOING:
            self._prepare(found, commit=commit, is_v2=False)
            return Identity(OK)
        is_repeated = found.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
        return Identity(OK if is_repeated else ErrorCode.invalid_txn_state)

    def _end_v2(
        self, found: Transaction, producer_id: int, epoch: int, now_ms: int, *, commit: bool
    ) -> Identity:
        """TransactionCoordinator.endTransaction, with its table of retries; the answer has the epoch to go on with."""
        is_overflow = (
            found.previous_producer_id == producer_id and epoch == LAST_EPOCH - 1 and found.epoch == 0
        )
        is_bumped = found.epoch == epoch + 1
        completed = found.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
        if found.is_pending:
            return Identity(ErrorCode.concurrent_transactions)
        if found.producer_id != producer_id and not is_overflow:
            return Identity(ErrorCode.invalid_producer_id_mapping)
        if epoch != found.epoch and not (completed and (is_bumped or is_overflow)):
            return Identity(ErrorCode.producer_fenced)
        if completed and (is_bumped or is_overflow):
            if found.state is not (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT):
                return Identity(ErrorCode.invalid_txn_state)
            return Identity(OK, found.producer_id, found.epoch)
        if found.state is not State.ONGOING:
            if commit:
                return Identity(ErrorCode.invalid_txn_state)
            # The client does not know whether anything was added, and may abort nothing.
            found.started_ms = now_ms
        identity = Identity(OK, found.producer_id, found.epoch + 1)
        if found.is_exhausted:
            next_producer_id = self._new_producer_id()
            if next_producer_id is None:
                return Identity(ErrorCode.coordinator_load_in_progress)
            found.next_producer_id = next_producer_id
            identity = Identity(OK, next_producer_id, 0)
        self._prepare(found, commit=commit, is_v2=True)
        return identity

    def _fence(self, found: Transaction) -> ErrorCode:
        """TransactionMetadata.prepareFenceProducerEpoch, and the abort that follows."""
        if not self._is_v2:
            found.epoch, found.last_epoch = min(found.epoch + 1, LAST_EPOCH), NO_EPOCH
        self._prepare(found, commit=False, is_v2=self._is_v2)
        return OK

    def _prepare(self, found: Transaction, *, commit: bool, is_v2: bool) -> None:
        """TransactionMetadata.prepareAbortOrCommit; version 2 bumps the epoch, and the markers have the new one."""
        if is_v2:
            found.last_epoch, found.epoch = found.epoch, min(found.epoch + 1, LAST_EPOCH)
        found.is_v2 = is_v2
        found.previous_producer_id = found.producer_id
        found.state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        self._end(found)

    def complete(self, found: Transaction) -> None:
        """TransactionMetadata.prepareComplete: all markers are written."""
        found.previous_producer_id = found.producer_id
        if found.is_v2 and found.next_producer_id != NO_ID:
            found.producer_id, found.epoch = found.next_producer_id, 0
        found.next_producer_id = NO_ID
        found.partitions = {}
        commits = found.state is State.PREPARE_COMMIT
        found.state = State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT

    def abort_timed_out(self, found: Transaction, now_ms: int) -> None:
        """TransactionCoordinator.abortTimedOutTransactions, for one of them."""
        if found.state is State.ONGOING and found.started_ms + found.timeout_ms < now_ms:
            self._fence(found)


def _is_owner(found: Transaction, producer_id: int, epoch: int) -> bool:
    """isValidProducerId of TransactionCoordinator.prepareInitProducerIdTransit."""
    return (
        found.epoch == NO_EPOCH
        or producer_id == found.producer_id
        or (producer_id == found.previous_producer_id and epoch >= LAST_EPOCH - 1)
    )
