"""A model of the brokers' logs: which batches they take, as Kafka 2.5 to 4.4 decide it.

From `ProducerAppendInfo.checkSequence` and `ProducerStateEntry`: no state accepts any first sequence (KIP-360),
a new epoch begins at 0, an old epoch is fenced, the last five batches are known as duplicates. Leaders of one
partition share its log, as replicas do. Knows no clients and no gateway.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tests.unit.gateway.model.wire import INVALID_PRODUCER_EPOCH, OUT_OF_ORDER

KEPT_BATCHES = 5
SEQUENCES = 1 << 31


@dataclass(slots=True)
class ProducerState:
    """What a partition knows of one producer id."""

    epoch: int
    last_sequence: int
    kept: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    """Base sequence and record count of the latest batches of this epoch."""


class ModelBroker:
    """The logs of all partitions: `log[partition]` holds what was appended, as the caller named it."""

    def __init__(self) -> None:
        self.log: dict[int, list[tuple[int, int]]] = {}
        """(producer id, number of the batch), in the order of the log."""
        self._states: dict[tuple[int, int], ProducerState] = {}

    def append(
        self, partition: int, producer_id: int, epoch: int, base_sequence: int, records: int, number: int
    ) -> tuple[int, bool]:
        """(error code, whether it is in the log now and was not before)."""
        state = self._states.get((producer_id, partition))
        if state is not None:
            if epoch < state.epoch:
                return INVALID_PRODUCER_EPOCH, False
            if epoch > state.epoch:
                if base_sequence != 0:
                    return OUT_OF_ORDER, False
                state = None
            elif (base_sequence, records) in state.kept:
                return 0, False
            elif base_sequence != (state.last_sequence + 1) % SEQUENCES:
                return OUT_OF_ORDER, False
        if state is None:
            state = self._states[(producer_id, partition)] = ProducerState(epoch, -1)
        state.last_sequence = (base_sequence + records - 1) % SEQUENCES
        state.kept.append((base_sequence, records))
        self.log.setdefault(partition, []).append((producer_id, number))
        return 0, True
