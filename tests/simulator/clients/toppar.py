"""librdkafka's view of one partition (`rd_kafka_toppar_t`)."""

from __future__ import annotations

from bisect import insort

from tests.simulator.clients.batches import Batch, State

NO_ID = (-1, -1)


class Toppar:
    """Of one partition: what waits to be sent, by message id, and what is expected of the answers.

    The ids of messages count from 1 and never change; sequences are counted from the first one of an epoch.
    """

    __slots__ = (
        "acked_id",
        "base_id",
        "in_flight",
        "is_registered",
        "next_ack",
        "next_error",
        "next_id",
        "partition",
        "pid",
        "queue",
        "wait_drain",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.queue: list[Batch] = []
        self.next_id = 1
        self.pid = NO_ID
        self.base_id = 0
        self.next_ack = 0
        self.next_error = 0
        self.acked_id = 0
        self.wait_drain = False
        self.in_flight = 0
        """Messages, not requests."""
        self.is_registered = False
        """Part of the transaction."""

    def take_in(self, batch: Batch) -> None:
        """A new batch of the application."""
        batch.first_id = self.next_id
        self.next_id += batch.records
        self.queue.append(batch)

    def put_back(self, batch: Batch) -> None:
        """To be sent again, in its place."""
        batch.state = State.RETRY
        insort(self.queue, batch, key=_first_id)

    def change_id(self, pid: tuple[int, int]) -> bool:
        """Begin with another id or epoch, unless something is in flight (`rd_kafka_toppar_pid_change`)."""
        if self.in_flight:
            return False
        self.pid, self.base_id = pid, self.queue[0].first_id
        self.next_ack = self.next_error = 0
        return True

    def number(self, batch: Batch) -> None:
        """Give a batch its sequence, which is another one only in another epoch."""
        place = (*self.pid, batch.first_id - self.base_id & 0x7FFFFFFF)
        if (batch.producer_id, batch.epoch, batch.base_sequence) != place:
            batch.numbered(*place)


def _first_id(batch: Batch) -> int:
    return batch.first_id
