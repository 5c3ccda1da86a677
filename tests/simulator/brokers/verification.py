"""What a broker asks a transaction's coordinator before it appends, and what producers are told of the answer. Pure.

Kafka: AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend; KIP-890.
"""

from __future__ import annotations

from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from tests.simulator.brokers.transaction import TopicPartition

FIRST_V2_VERSION: Final = 12
"""Produce that adds its partitions to the transaction itself; 11 knows TRANSACTION_ABORTABLE (KIP-890)."""
RETRY_MS: Final = 20
"""add.partitions.to.txn.retry.backoff.ms."""
MOST_RETRY_MS: Final = 100
"""add.partitions.to.txn.retry.backoff.max.ms."""

_RETRIABLE_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
"""ReplicaManager makes NOT_ENOUGH_REPLICAS of them: clients repeat the request after that."""


class TransactionSide(Protocol):
    """The coordinators, asked by a broker that is given a transactional batch."""

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: list[TopicPartition],
        now_ms: int,
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Return what the coordinator says to each partition."""
        ...


def said_to_producer(error: ErrorCode, version: int) -> ErrorCode:
    """Return what a Produce of this version is told of a coordinator's error."""
    if error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if error is ErrorCode.transaction_abortable and version < FIRST_V2_VERSION - 1:
        return ErrorCode.invalid_txn_state
    if error in _RETRIABLE_ELSEWHERE:
        return ErrorCode.not_enough_replicas
    if error is ErrorCode.concurrent_transactions and version < FIRST_V2_VERSION:
        return ErrorCode.not_enough_replicas
    return error
