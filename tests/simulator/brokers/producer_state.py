"""Producer state of one partition, as Kafka 4.3 keeps it and judges batches by it. Pure.

Kafka: storage/internals/log/ProducerStateManager, ProducerStateEntry, ProducerAppendInfo, VerificationStateEntry, and
UnifiedLog.analyzeAndValidateProducerState. No broker since 2.5 answers UNKNOWN_PRODUCER_ID (KIP-360): an id without
state, whether it never had any or has lost it, may begin with any sequence; only a transactional one of version 2
begins with 0 (KAFKA-18202).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from tests.simulator.brokers.batches import SEQUENCES, BatchHead

KEPT_BATCHES: Final = 5
"""ProducerStateEntry.NUM_BATCHES_TO_RETAIN."""
EXPIRATION_MS: Final = 86_400_000
"""producer.id.expiration.ms (KIP-854)."""
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

OK: Final = ErrorCode.none


class KeptBatch(NamedTuple):
    """ProducerStateEntry's BatchMetadata: enough to answer a duplicate as its first arrival was."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


@dataclass(slots=True)
class ProducerState:
    """ProducerStateEntry: what a partition knows of one producer id."""

    epoch: int = NO_EPOCH
    kept: deque[KeptBatch] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    transaction_first_offset: int | None = None
    """Offset of the first batch of the transaction that is open here."""

    @property
    def last_sequence(self) -> int:
        return self.kept[-1].last_sequence if self.kept else NO_SEQUENCE

    def has_epoch(self, epoch: int) -> None:
        """ProducerStateEntry.maybeUpdateProducerEpoch: a new epoch forgets the batches of the old one."""
        if self.epoch != epoch:
            self.epoch = epoch
            self.kept.clear()


@dataclass(slots=True, eq=False)
class Verification:
    """VerificationStateEntry: a transactional batch of this id waits for its transaction to be verified (KIP-890)."""

    epoch: int
    lowest_sequence: int
    supports_epoch_bump: bool
    timestamp_ms: int

    def saw(self, sequence: int, epoch: int) -> None:
        """maybeUpdateLowestSequenceAndEpoch: what is above the lowest sequence seen has to wait for it."""
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence


class ProducerStates:
    """ProducerStateManager: the states of all producer ids of one log."""

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        self._verifications: dict[int, Verification] = {}
        self._unreplicated: list[tuple[int, int]] = []
        """Transactions that have ended: (first offset, offset of the marker), until the marker is replicated."""

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        """UnifiedLog.hasOngoingTransaction."""
        state = self.states.get(producer_id)
        return state is not None and state.transaction_first_offset is not None and state.epoch == epoch

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> Verification | ErrorCode | None:
        """UnifiedLog.maybeStartTransactionVerification; None: the transaction is known here, nothing to verify."""
        state = self.states.get(producer_id)
        if state is not None and epoch < state.epoch:
            return ErrorCode.invalid_producer_epoch
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        found = self._verifications.get(producer_id)
        if found is None:
            found = Verification(epoch, sequence, supports_epoch_bump, now_ms)
            self._verifications[producer_id] = found
        found.saw(sequence, epoch)
        return found

    def duplicate_of(self, head: BatchHead) -> KeptBatch | None:
        """ProducerStateEntry.findDuplicateBatch: one of the five kept batches of this epoch, the very same range."""
        state = self.states.get(head.producer_id)
        if state is None or state.epoch != head.epoch:
            return None
        base, last = head.base_sequence, head.last_sequence
        for kept in state.kept:
            if kept.base_sequence == base and kept.last_sequence == last:
                return kept
        return None

    def judge(self, head: BatchHead, guard: Verification | None, *, has_sequence: bool = True) -> ErrorCode:
        """Return why a batch must not be appended, or OK; it is no duplicate.

        `has_sequence`: it comes from a client; offsets that a group's coordinator appends have no sequence.
        """
        state = self.states.get(head.producer_id)
        if (
            head.is_transactional
            and not self.has_ongoing_transaction(head.producer_id, head.epoch)
            and (state is None or head.epoch >= state.epoch)
            and (guard is None or self._verifications.get(head.producer_id) is not guard)
        ):
            # UnifiedLog.batchMissingRequiredVerification; a stale epoch is named first.
            return ErrorCode.invalid_txn_state
        if state is not None and head.epoch < state.epoch:
            return ErrorCode.invalid_producer_epoch
        error = self._judge_sequence(head, state) if has_sequence else OK
        if error is OK and state is not None and not head.is_transactional:
            # ProducerAppendInfo.appendDataBatch: a transaction is open, and this batch is not of it.
            return OK if state.transaction_first_offset is None else ErrorCode.invalid_txn_state
        return error

    def _judge_sequence(self, head: BatchHead, state: ProducerState | None) -> ErrorCode:
        """ProducerAppendInfo.checkSequence."""
        verification = self._verifications.get(head.producer_id)
        if verification is not None:
            is_empty = state is None or not state.kept
            if verification.supports_epoch_bump and head.base_sequence != 0 and is_empty:
                return ErrorCode.out_of_order_sequence_number
            if head.base_sequence > verification.lowest_sequence:
                return ErrorCode.out_of_order_sequence_number
        if state is None or state.epoch == NO_EPOCH:
            return OK
        expected = (state.last_sequence + 1) % SEQUENCES if head.epoch == state.epoch else 0
        return OK if head.base_sequence == expected else ErrorCode.out_of_order_sequence_number

    def append(self, head: BatchHead, base_offset: int) -> None:
        """ProducerAppendInfo.appendDataBatch after the checks, and on a replica without any."""
        state = self.states.get(head.producer_id)
        if state is None:
            state = self.states[head.producer_id] = ProducerState()
        state.has_epoch(head.epoch)
        last_offset = base_offset + head.records - 1
        state.kept.append(KeptBatch(head.base_sequence, head.last_sequence, base_offset, last_offset))
        state.last_timestamp_ms = head.max_timestamp_ms
        if head.is_transactional:
            if state.transaction_first_offset is None:
                state.transaction_first_offset = base_offset
            self._verifications.pop(head.producer_id, None)

    def judge_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, transactions_v2: bool
    ) -> ErrorCode:
        """ProducerAppendInfo.checkProducerEpoch and checkCoordinatorEpoch for a marker.

        A marker of version 2 has an epoch above all batches of its transaction; the same epoch again is taken only when
        no transaction is open (KAFKA-19999).
        """
        state = self.states.get(producer_id)
        if state is None:
            return OK
        if transactions_v2 and epoch == state.epoch and state.transaction_first_offset is not None:
            return ErrorCode.invalid_producer_epoch
        if epoch < state.epoch:
            return ErrorCode.invalid_producer_epoch
        if state.coordinator_epoch > coordinator_epoch:
            return ErrorCode.transaction_coordinator_fenced
        return OK

    def append_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp_ms: int
    ) -> int | None:
        """ProducerAppendInfo.appendEndTxnMarker; return the first offset of the transaction that ends, if any."""
        state = self.states.get(producer_id)
        if state is None:
            state = self.states[producer_id] = ProducerState()
        first_offset = state.transaction_first_offset
        if first_offset is not None:
            self._unreplicated.append((first_offset, offset))
        state.has_epoch(epoch)
        state.coordinator_epoch = coordinator_epoch
        state.transaction_first_offset = None
        state.last_timestamp_ms = timestamp_ms
        verification = self._verifications.get(producer_id)
        if verification is not None and not (
            verification.supports_epoch_bump and verification.epoch == epoch
        ):
            # Otherwise it is of the transaction after this one, which has that epoch (UnifiedLog.updateProducers).
            del self._verifications[producer_id]
        return first_offset

    def replicated(self, high_watermark: int) -> None:
        """ProducerStateManager.onHighWatermarkUpdated."""
        if self._unreplicated:
            self._unreplicated = [ended for ended in self._unreplicated if ended[1] >= high_watermark]

    def first_unstable_offset(self) -> int | None:
        """ProducerStateManager.firstUnstableOffset."""
        found = [first for first, _ in self._unreplicated]
        found += [
            state.transaction_first_offset
            for state in self.states.values()
            if state.transaction_first_offset is not None
        ]
        return min(found, default=None)

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """ProducerStateManager.removeExpiredProducers: by the time of the last batch; open transactions stay."""
        for producer_id, state in list(self.states.items()):
            if state.transaction_first_offset is None and now_ms - state.last_timestamp_ms >= expiration_ms:
                del self.states[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.timestamp_ms >= expiration_ms:
                del self._verifications[producer_id]
