"""One transaction as its coordinator knows it: TransactionMetadata and TransactionState of Kafka. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

OK: Final = ErrorCode.none
NO_ID: Final = -1
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 0x7FFF
"""Short.MAX_VALUE: only the coordinator uses it, to fence."""

TopicPartition = tuple[str, int]


class State(Enum):
    """TransactionState; PREPARE_EPOCH_FENCE and DEAD are never reached between two requests."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_PREPARED: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


@dataclass(slots=True)
class Transaction:
    """TransactionMetadata."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    state: State = State.EMPTY
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    started_ms: int = -1
    is_v2: bool = False
    """The end that is prepared came from a client of transactions version 2, or from the coordinator itself."""

    @property
    def is_pending(self) -> bool:
        """TransactionMetadata.pendingTransitionInProgress: the markers of its end are under way."""
        return self.state in _PREPARED

    @property
    def is_exhausted(self) -> bool:
        """TransactionMetadata.isProducerEpochExhausted."""
        return self.epoch >= LAST_EPOCH - 1


class Identity(NamedTuple):
    """The answer to InitProducerId and EndTxn."""

    error_code: ErrorCode
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH
