"""franz-go's buffer of one partition (`recBuf`): batches, which of them are sent, and the rewinding."""

from __future__ import annotations

from tests.simulator.clients.batches import Batch, State


class RecBuf:
    """Only the first batch is ever acted upon; after an error all are sent again from there."""

    __slots__ = (
        "batches",
        "drained",
        "failing",
        "first_sequence",
        "in_flight",
        "in_flight_on",
        "is_added",
        "last_acked_offset",
        "needs_reset",
        "next_sequence",
        "ok_on_sink",
        "partition",
        "unknown_failures",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.batches: list[Batch] = []
        self.drained = 0
        """How many of the batches are on their way; the next one to go is `batches[drained]`."""
        self.next_sequence = 0
        self.first_sequence = 0
        """Of `batches[0]`."""
        self.needs_reset = False
        self.in_flight = 0
        self.in_flight_on = -1
        """The node at which requests are in flight; -1: none."""
        self.ok_on_sink = False
        """The last answer was a success: only then is more than one in flight."""
        self.failing = False
        """Nothing goes until the leaders have been asked for."""
        self.is_added = False
        """Part of the transaction."""
        self.unknown_failures = 0
        self.last_acked_offset = -1

    def may_go(self, node_id: int) -> bool:
        """Whether a request to that node takes a batch from here."""
        return (
            not self.failing
            and self.drained < len(self.batches)
            and self.in_flight_on in (-1, node_id)
            and (self.in_flight == 0 or self.ok_on_sink)
        )

    def take(self, node_id: int, producer_id: int, epoch: int) -> Batch:
        """The next batch goes out."""
        batch = self.batches[self.drained]
        if self.drained == 0 and self.needs_reset:
            self.needs_reset = False
            self.next_sequence = self.first_sequence = 0
        place = (producer_id, epoch, self.next_sequence)
        if (batch.producer_id, batch.epoch, batch.base_sequence) != place:
            batch.numbered(*place)
        batch.state = State.IN_FLIGHT
        self.in_flight += 1
        self.in_flight_on = node_id
        self.drained += 1
        self.next_sequence = self.next_sequence + batch.records & 0x7FFFFFFF
        return batch

    def is_first(self, batch: Batch) -> bool:
        """Whether its answer counts."""
        return bool(self.batches) and self.batches[0] is batch

    def rewind(self) -> None:
        """`resetBatchDrainIdx`."""
        self.next_sequence = self.first_sequence
        for batch in self.batches[: self.drained]:
            batch.state = State.RETRY
        self.drained = 0

    def landed(self) -> None:
        """A request that held a batch of this is over."""
        self.in_flight -= 1
        if self.in_flight == 0:
            self.in_flight_on = -1

    def finish_first(self) -> None:
        """`batches[0]` is written."""
        batch = self.batches.pop(0)
        self.first_sequence = self.first_sequence + batch.records & 0x7FFFFFFF
        self.drained = max(self.drained - 1, 0)

    def fail_all(self) -> list[Batch]:
        """All are out of it; return them."""
        batches, self.batches = self.batches, []
        self.next_sequence, self.drained = self.first_sequence, 0
        return batches
