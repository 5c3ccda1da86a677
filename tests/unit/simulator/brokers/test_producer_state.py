"""Producer state of one partition: which batches Kafka takes, which it knows, which it refuses."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from tests.simulator.brokers.batches import BatchHead
from tests.simulator.brokers.entries import Appended
from tests.simulator.brokers.partition import Partition
from tests.simulator.brokers.producer_state import EXPIRATION_MS, ProducerStates, Verification

OUT_OF_ORDER, OLD_EPOCH = ErrorCode.out_of_order_sequence_number, ErrorCode.invalid_producer_epoch
TRANSACTIONAL = 0x10
ID = 7


def head(
    sequence: int, *, epoch: int = 0, records: int = 1, attributes: int = 0, at_ms: int = 0
) -> BatchHead:
    return BatchHead(ID, epoch, sequence, records, records - 1, attributes, at_ms, 0)


def appended(
    partition: Partition,
    sequence: int,
    *,
    epoch: int = 0,
    records: int = 1,
    attributes: int = 0,
    guard: Verification | None = None,
) -> Appended:
    return partition.append(head(sequence, epoch=epoch, records=records, attributes=attributes), b"", guard)


def verified(partition: Partition, sequence: int, epoch: int = 0, *, is_v2: bool = True) -> Verification:
    found = partition.states.start_verification(ID, epoch, sequence, supports_epoch_bump=is_v2, now_ms=0)
    assert isinstance(found, Verification)
    return found


def partition() -> Partition:
    return Partition("orders", 0, [1])


def test_an_id_without_state_begins_with_any_sequence() -> None:
    assert appended(partition(), 41).error_code == 0


def test_a_gap_and_what_lies_behind_are_out_of_order() -> None:
    log = partition()
    assert appended(log, 0, records=3).error_code == 0
    assert appended(log, 4).error_code is OUT_OF_ORDER
    assert appended(log, 1).error_code is OUT_OF_ORDER
    assert appended(log, 3).error_code == 0
    assert [entry.base_sequence for entry in log.log] == [0, 3]


def test_the_last_five_batches_are_answered_as_the_first_time() -> None:
    log = partition()
    for sequence in range(0, 12, 2):
        appended(log, sequence, records=2)
    for sequence in range(2, 12, 2):
        assert appended(log, sequence, records=2) == (0, sequence, sequence + 2)
    assert appended(log, 0, records=2).error_code is OUT_OF_ORDER
    assert appended(log, 2, records=1).error_code is OUT_OF_ORDER  # not the same range
    assert len(log.log) == 6


def test_a_new_epoch_begins_with_0_and_forgets_the_batches_of_the_old_one() -> None:
    log = partition()
    appended(log, 0)
    appended(log, 1)
    assert appended(log, 2, epoch=1).error_code is OUT_OF_ORDER
    assert appended(log, 0, epoch=1).base_offset == 2
    assert appended(log, 2).error_code is OLD_EPOCH
    assert appended(log, 1).error_code is OLD_EPOCH  # a duplicate before, fenced now
    assert appended(log, 0, epoch=1).base_offset == 2


def test_sequences_go_round_after_the_largest() -> None:
    log = partition()
    assert appended(log, 0x7FFFFFFE, records=3).error_code == 0
    assert appended(log, 0x7FFFFFFF).error_code is OUT_OF_ORDER
    assert appended(log, 1).error_code == 0
    log = partition()
    appended(log, 0x7FFFFFFF)
    assert appended(log, 0).error_code == 0


def test_state_expires_by_the_time_of_the_last_batch_and_any_sequence_is_taken_then() -> None:
    states = ProducerStates()
    states.append(head(0, at_ms=1000), 0)
    states.expire(999 + EXPIRATION_MS)
    assert states.judge(head(9), None) is OUT_OF_ORDER
    states.expire(1000 + EXPIRATION_MS)
    assert states.judge(head(9), None) == 0


def test_an_open_transaction_does_not_expire() -> None:
    log = partition()
    appended(log, 0, attributes=TRANSACTIONAL, guard=verified(log, 0))
    log.states.expire(2 * EXPIRATION_MS)
    assert log.states.has_ongoing_transaction(ID, 0)


def test_a_transactional_batch_has_to_be_verified_once() -> None:
    log = partition()
    assert appended(log, 0, attributes=TRANSACTIONAL).error_code is ErrorCode.invalid_txn_state
    guard = verified(log, 0)
    assert appended(log, 0, attributes=TRANSACTIONAL, guard=guard).error_code == 0
    assert log.states.start_verification(ID, 0, 1, supports_epoch_bump=True, now_ms=0) is None
    assert appended(log, 1, attributes=TRANSACTIONAL).error_code == 0


def test_a_verification_from_before_a_marker_is_void() -> None:
    log = partition()
    guard = verified(log, 0, is_v2=False)
    assert log.append_marker(ID, 0, 0, 0, commit=False, transactions_v2=False) == 0
    assert appended(log, 0, attributes=TRANSACTIONAL, guard=guard).error_code is ErrorCode.invalid_txn_state


def test_a_marker_leaves_the_verification_of_the_next_transaction() -> None:
    log = partition()
    guard = verified(log, 0, 1)
    assert log.append_marker(ID, 1, 0, 0, commit=False, transactions_v2=True) == 0
    assert appended(log, 0, epoch=1, attributes=TRANSACTIONAL, guard=guard).error_code == 0


def test_version_2_begins_with_0_and_nothing_passes_a_lower_sequence_that_waits() -> None:
    log = partition()
    guard = verified(log, 3)
    assert appended(log, 3, attributes=TRANSACTIONAL, guard=guard).error_code is OUT_OF_ORDER
    log = partition()
    verified(log, 3, is_v2=False)
    guard = verified(log, 1, is_v2=False)
    assert appended(log, 3, attributes=TRANSACTIONAL, guard=guard).error_code is OUT_OF_ORDER
    assert appended(log, 1, attributes=TRANSACTIONAL, guard=guard).error_code == 0


def test_a_batch_that_is_not_of_the_open_transaction_is_refused() -> None:
    log = partition()
    appended(log, 0, attributes=TRANSACTIONAL, guard=verified(log, 0))
    assert appended(log, 1).error_code is ErrorCode.invalid_txn_state


def test_sequences_go_on_after_a_marker_of_version_1_and_begin_anew_after_one_of_version_2() -> None:
    log = partition()
    appended(log, 0, attributes=TRANSACTIONAL, guard=verified(log, 0))
    log.append_marker(ID, 0, 0, 0, commit=True, transactions_v2=False)
    assert appended(log, 1, attributes=TRANSACTIONAL, guard=verified(log, 1)).error_code == 0
    assert log.append_marker(ID, 0, 0, 0, commit=True, transactions_v2=True) is OLD_EPOCH
    assert log.append_marker(ID, 1, 0, 0, commit=True, transactions_v2=True) == 0
    assert log.append_marker(ID, 1, 0, 0, commit=True, transactions_v2=True) == 0  # once more, KAFKA-19999
    guard = verified(log, 2, 1)
    assert appended(log, 2, epoch=1, attributes=TRANSACTIONAL, guard=guard).error_code is OUT_OF_ORDER
    guard = verified(log, 0, 1)
    assert appended(log, 0, epoch=1, attributes=TRANSACTIONAL, guard=guard).error_code == 0


def test_a_marker_of_an_old_coordinator_is_fenced() -> None:
    log = partition()
    assert log.append_marker(ID, 0, 5, 0, commit=True, transactions_v2=False) == 0
    error = log.append_marker(ID, 0, 4, 0, commit=True, transactions_v2=False)
    assert error is ErrorCode.transaction_coordinator_fenced
