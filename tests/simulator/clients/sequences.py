"""Java's view of one partition's sequences (`TxnPartitionEntry`)."""

from __future__ import annotations

from tests.simulator.clients.batches import Batch


class Sequences:
    """Of one partition: the id and epoch in use there, the next sequence, and what has one and is not done."""

    __slots__ = ("epoch", "in_flight", "last_acked", "last_acked_offset", "next_sequence", "producer_id")

    def __init__(self) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.next_sequence = 0
        self.last_acked = -1
        self.last_acked_offset = -1
        self.in_flight: list[Batch] = []
        """By sequence; sent and not done, also while they wait for another try."""

    def number(self, batch: Batch) -> None:
        """Give a batch the next sequence."""
        batch.numbered(self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = self.next_sequence + batch.records & 0x7FFFFFFF
        self.in_flight.append(batch)

    def start_at_beginning(self, producer_id: int, epoch: int) -> None:
        """Begin a new epoch; what is in flight is numbered anew."""
        self.producer_id, self.epoch = producer_id, epoch
        sequence = 0
        for batch in self.in_flight:
            batch.numbered(producer_id, epoch, sequence)
            sequence += batch.records
        self.next_sequence, self.last_acked = sequence, -1

    def close_gap(self, failed: Batch) -> None:
        """A batch failed for good: those behind it move up (`adjustSequencesDueToFailedBatch`)."""
        self.next_sequence -= failed.records
        for batch in self.in_flight:
            if batch.base_sequence >= failed.base_sequence:
                batch.numbered(batch.producer_id, batch.epoch, batch.base_sequence - failed.records)

    def acked(self, batch: Batch, offset: int) -> None:
        """It is written."""
        self.last_acked = max(self.last_acked, batch.last_sequence)
        if offset >= 0:
            self.last_acked_offset = max(self.last_acked_offset, offset + batch.records - 1)
        self.remove(batch)

    def remove(self, batch: Batch) -> None:
        """It is done."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def is_next(self, sequence: int) -> bool:
        """Whether nothing is missing before that sequence."""
        return sequence - self.last_acked == 1
