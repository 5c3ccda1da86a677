"""Producer state of one partition: which batches Kafka takes, which it knows, which it refuses."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from tests.simulator.brokers.batches import BatchHead
from tests.simulator.brokers.entries import Appended
from tests.simulator.brokers.partition import Partition
from tests.simulator.brokers.producer_state import EXPIRATION_MS, ProducerStates, Verification

OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number
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


def test_a_marker_of_an_old_coordinator_is_fenced() -> None:
    log = partition()
    assert log.append_marker(ID, 0, 5, 0, commit=True, transactions_v2=False) == 0
    error = log.append_marker(ID, 0, 4, 0, commit=True, transactions_v2=False)
    assert error is ErrorCode.transaction_coordinator_fenced
