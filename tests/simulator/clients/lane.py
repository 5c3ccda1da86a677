"""What a model producer knows of one partition: open batches, their sequences, and how many are in flight."""

from __future__ import annotations

from tests.simulator.clients.batches import Batch, State

NO_ID = (-1, -1)
Identity = tuple[int, int]
"""A producer id and its epoch."""


class Lane:
    """Holds the open batches of one partition in the order of their sequences."""

    __slots__ = (
        "acked_to",
        "batches",
        "identity",
        "in_flight",
        "in_flight_at",
        "is_added",
        "is_draining",
        "last_offset",
        "needs_leaders",
        "next_sequence",
        "partition",
        "run",
        "succeeded",
        "unresolved",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.batches: list[Batch] = []
        self.identity = NO_ID
        self.run = 0
        """Counts how often the sequences have begun at 0."""
        self.next_sequence = 0
        self.acked_to = 0
        """The sequence behind the last acknowledged batch."""
        self.in_flight = 0
        self.in_flight_at: int | None = None
        """The node where batches are in flight."""
        self.is_draining = False
        """Nothing is sent until nothing is in flight."""
        self.needs_leaders = False
        """Nothing is sent until the next Metadata answer."""
        self.succeeded = False
        """The last answer was a success."""
        self.unresolved: int | None = None
        """A batch that had been sent has expired: the sequence behind it."""
        self.is_added = False
        """The partition is part of the transaction."""
        self.last_offset = -1

    def next_batch(self) -> Batch | None:
        """Return the first batch that is not in flight."""
        return next((batch for batch in self.batches if batch.state is not State.IN_FLIGHT), None)

    @property
    def has_numbered(self) -> bool:
        """Whether an open batch has a sequence."""
        return any(batch.base_sequence >= 0 for batch in self.batches)

    def restart(self, identity: Identity) -> None:
        """Begin at 0 under another id or epoch."""
        self.identity, self.unresolved = identity, None
        self.run += 1
        self.next_sequence = self.acked_to = 0

    def renumber(self, identity: Identity) -> None:
        """Begin at 0 and number all that had a sequence again, also what is in flight."""
        self.restart(identity)
        for batch in self.batches:
            if batch.base_sequence >= 0:
                self._number(batch, identity)

    def send(self, batch: Batch, identity: Identity, node_id: int, weight: int, *, keeps_old: bool) -> None:
        """Note that a batch leaves under this id; number it if it has no sequence of this run.

        `keeps_old`: batches that have a sequence keep it under another id or epoch.
        """
        if self.identity != identity:
            may_restart = not self.has_numbered if keeps_old else batch is self.batches[0]
            if may_restart:
                self.restart(identity)
        if batch.run != self.run or batch.base_sequence < 0:
            self._number(batch, identity)
        batch.state, batch.is_reset = State.IN_FLIGHT, False
        self.in_flight += weight
        self.in_flight_at = node_id

    def _number(self, batch: Batch, identity: Identity) -> None:
        batch.numbered(*identity, self.next_sequence)
        batch.run = self.run
        self.next_sequence = self.next_sequence + batch.records & 0x7FFFFFFF

    def landed(self, weight: int) -> None:
        """Note that a request which held a batch of this partition is over."""
        self.in_flight -= weight
        if self.in_flight == 0:
            self.in_flight_at = None

    def acknowledge(self, batch: Batch, offset: int) -> None:
        """Note that the broker has a batch."""
        self.succeeded = True
        if batch.run == self.run:
            self.acked_to = max(self.acked_to, batch.base_sequence + batch.records)
        if offset >= 0:
            self.last_offset = max(self.last_offset, offset + batch.records - 1)

    def rewind(self) -> None:
        """Have everything that is in flight sent again."""
        for batch in self.batches:
            batch.state = State.RETRY if batch.state is State.IN_FLIGHT else batch.state

    def purge(self, *, keeps_numbered: bool) -> list[Batch]:
        """Take out the batches that are not in flight, and return them. Their sequences are used again."""
        gone = [
            batch
            for batch in self.batches
            if batch.state is not State.IN_FLIGHT and not (keeps_numbered and batch.base_sequence >= 0)
        ]
        self.batches = [batch for batch in self.batches if batch not in gone]
        self.next_sequence -= sum(
            batch.records for batch in gone if batch.run == self.run and batch.base_sequence >= 0
        )
        return gone
