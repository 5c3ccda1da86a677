"""Models of idempotent producers: what they send next, and what they make of an answer.

Only what a real client does: a client that behaves like none would fail the property falsely. Sources: Java
`Sender`, `RecordAccumulator.shouldStopDrainBatchesForPartition`, `TransactionManager`; librdkafka
`rd_kafka_handle_Produce`, `rd_kafka_dr_implicit_ack`, `rd_kafka_idemp_drain_toppar`. Both keep batches as they
were first sent, have at most five requests in flight on a connection and retry in order. Timing is left out: a
step may come at any time, so what holds here holds for every back-off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulator.clients.batches import ModelViolation, State
from tests.unit.gateway.model.wire import (
    INVALID_PRODUCER_EPOCH,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER,
    OUT_OF_ORDER,
)

MOST_IN_FLIGHT = 5
RETRIABLE = (NOT_ENOUGH_REPLICAS, NOT_LEADER)


@dataclass(slots=True)
class Batch:
    """One batch of one partition; `number` counts the batches of its producer and partition from 0."""

    partition: int
    number: int
    records: int
    state: State = State.QUEUED
    epoch: int = -1
    base_sequence: int = -1
    is_uncertain: bool = False
    """Cut off once: whether the broker has it is not known, whatever was refused since."""

    @property
    def is_done(self) -> bool:
        return self.state >= State.ACKED


@dataclass(slots=True)
class Partition:
    """A producer's view of one partition."""

    epoch: int = 0
    next_sequence: int = 0
    acked_up_to: int = -1
    """Last sequence that was acknowledged, in this epoch."""
    unresolved: bool = False
    """Java: a batch that had been sent has expired; whether the broker has it is not known."""
    wants_epoch: bool = False
    """An epoch bump was asked for, and waits until nothing is in flight."""
    batches: list[Batch] = field(default_factory=list)

    def open_batches(self) -> list[Batch]:
        return [batch for batch in self.batches if not batch.is_done]

    def any_in_flight(self) -> bool:
        return any(batch.state is State.IN_FLIGHT for batch in self.batches)


class Producer:
    """What both clients have in common. A subclass says what may be sent and how an epoch is bumped."""

    kind = ""
    partitions_per_request = 1

    def __init__(self, name: str, producer_id: int, partitions: int) -> None:
        self.name = name
        self.producer_id = producer_id
        self.epoch = 0
        self.partitions = [Partition() for _ in range(partitions)]
        self.in_flight: dict[int, int] = {}
        """Requests in flight by node."""

    def add(self, partition: int, records: int = 1) -> None:
        """The application sends one more batch."""
        batches = self.partitions[partition].batches
        batches.append(Batch(partition, len(batches), records))

    @property
    def is_done(self) -> bool:
        return all(batch.is_done for view in self.partitions for batch in view.batches)

    def may_send_to(self, node: int) -> bool:
        return self.in_flight.get(node, 0) < MOST_IN_FLIGHT

    def next_of(self, partition: int, *, leader_moved: bool) -> Batch | None:
        """The batch that may be sent now, if any. `leader_moved`: older ones are in flight at another node."""
        raise NotImplementedError

    def taken(self, batch: Batch) -> None:
        """The batch goes out: it gets its sequence if it has none."""
        view = self.partitions[batch.partition]
        if batch.base_sequence < 0:
            batch.epoch, batch.base_sequence = view.epoch, view.next_sequence
            view.next_sequence += batch.records
        batch.state = State.IN_FLIGHT

    def answered(self, batch: Batch, error_code: int) -> None:
        """A batch's answer was read by the client."""
        if batch.is_done:
            return
        view = self.partitions[batch.partition]
        if error_code == 0:
            batch.state = State.ACKED
            view.acked_up_to = max(view.acked_up_to, batch.base_sequence + batch.records - 1)
            self._acknowledged(view, batch)
        elif error_code in RETRIABLE:
            batch.state = State.RETRY
        elif error_code == OUT_OF_ORDER:
            self._out_of_order(view, batch)
        else:
            what = "fenced" if error_code == INVALID_PRODUCER_EPOCH else f"answered {error_code}"
            raise ModelViolation(f"{self.name} was {what} for batch {batch}")
        self._settle()

    def cut_off(self, batches: Iterable[Batch]) -> None:
        """A connection ended before the answers of these were read."""
        for batch in batches:
            if not batch.is_done:
                batch.state = State.RETRY
                batch.is_uncertain = True
        self._settle()

    def expire(self, partition: int) -> bool:
        """Delivery time-out of the lowest open batch, if it is not in flight; the application is told."""
        view = self.partitions[partition]
        batch = next(iter(view.open_batches()), None)
        if batch is None or batch.state is State.IN_FLIGHT or not self._may_expire():
            return False
        was_sent = batch.state is State.RETRY
        batch.state = State.FAILED
        if was_sent:
            self._expired_after_sending(view)
        self._settle()
        return True

    def _may_expire(self) -> bool:
        return True

    def _acknowledged(self, view: Partition, batch: Batch) -> None:
        pass

    def _out_of_order(self, view: Partition, batch: Batch) -> None:
        """45: an earlier batch is missing at the broker."""
        raise NotImplementedError

    def _expired_after_sending(self, view: Partition) -> None:
        raise NotImplementedError

    def _settle(self) -> None:
        """What becomes possible when less is in flight."""
        raise NotImplementedError

    def _begin_epoch(self, view: Partition) -> None:
        """Sequences start anew; what is open and was sent gets new ones."""
        view.epoch, view.next_sequence, view.acked_up_to = self.epoch, 0, -1
        view.unresolved = view.wants_epoch = False
        for batch in view.batches:
            if batch.state is State.RETRY:
                # Numbered anew at once, in order, as Java's resetProducerState does.
                batch.epoch, batch.base_sequence = view.epoch, view.next_sequence
                view.next_sequence += batch.records


class JavaProducer(Producer):
    """Retries one at a time and in order; new batches go beside the last retry, and to a new leader at once."""

    kind = "java"
    partitions_per_request = 1_000

    def next_of(self, partition: int, *, leader_moved: bool) -> Batch | None:
        view = self.partitions[partition]
        head = next((batch for batch in view.batches if batch.state in (State.QUEUED, State.RETRY)), None)
        if head is None or view.wants_epoch:
            return None
        lowest_sent = next((batch for batch in view.open_batches() if batch.base_sequence >= 0), None)
        if head.state is State.RETRY:
            return head if head is lowest_sent else None
        if view.unresolved:
            return None
        if view.epoch != self.epoch:
            if lowest_sent is not None:
                return None
            self._begin_epoch(view)
        return head

    def _out_of_order(self, view: Partition, batch: Batch) -> None:
        # Retried, unless it is the next one by now: then in a new epoch (TransactionManager.canRetry).
        batch.state = State.RETRY
        if view.unresolved or batch.base_sequence == view.acked_up_to + 1:
            view.wants_epoch = True

    def _expired_after_sending(self, view: Partition) -> None:
        view.unresolved = True

    def _settle(self) -> None:
        for view in self.partitions:
            if view.unresolved and not any(batch.base_sequence >= 0 for batch in view.open_batches()):
                if view.acked_up_to + 1 == view.next_sequence:
                    view.unresolved = False
                else:
                    view.wants_epoch = True
            if view.wants_epoch and not view.any_in_flight():
                self.epoch += 1
                self._begin_epoch(view)


class LibrdkafkaProducer(Producer):
    """Retries in a pipeline; a success acknowledges what waits before it. Drains before a new leader or epoch."""

    kind = "librdkafka"

    def next_of(self, partition: int, *, leader_moved: bool) -> Batch | None:
        view = self.partitions[partition]
        if view.wants_epoch or (leader_moved and view.any_in_flight()):
            return None
        return next((batch for batch in view.batches if batch.state in (State.QUEUED, State.RETRY)), None)

    def _may_expire(self) -> bool:
        # The epoch would be bumped, and what was cut off be written twice (see `_settle`).
        return not any(batch.is_uncertain for view in self.partitions for batch in view.open_batches())

    def _acknowledged(self, view: Partition, batch: Batch) -> None:
        # rd_kafka_dr_implicit_ack: nobody asks whether those were refused.
        for earlier in view.batches[: batch.number]:
            if earlier.state in (State.QUEUED, State.RETRY):
                earlier.state = State.ACKED

    def _out_of_order(self, view: Partition, batch: Batch) -> None:
        batch.state = State.RETRY
        if batch is view.open_batches()[0] and batch.base_sequence == view.acked_up_to + 1:
            raise ModelViolation(f"{self.name} dies of a fatal error: 45 for the batch that is next, {batch}")
        self._ask_epoch()

    def _expired_after_sending(self, view: Partition) -> None:
        self._ask_epoch()

    def _ask_epoch(self) -> None:
        for view in self.partitions:
            view.wants_epoch = True

    def _settle(self) -> None:
        if not any(view.wants_epoch for view in self.partitions):
            return
        if any(view.any_in_flight() for view in self.partitions):
            return
        self.epoch += 1
        for view in self.partitions:
            for batch in view.open_batches():
                if batch.is_uncertain:
                    # Numbered anew it would be written twice, with no gateway at all: the application is told.
                    batch.state = State.FAILED
            self._begin_epoch(view)
