"""The batches of one idempotent producer to one partition: sent in order, none lost or doubled.

As in Java's producer (Sender, TransactionManager), at most five batches are sent from the oldest unacknowledged one
on. After a refusal nothing is sent until all answers have arrived; then all unacknowledged batches are sent again, in
order, with their sequences. When a batch is given up, or the broker has lost the sequence, the rest continues under a
new id or epoch. PURE: time is an argument, in seconds of one clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pidgate.load.tally import Tally
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.record_batch import MAX_SEQUENCE

MOST_AHEAD: Final = 5
"""Batches of a producer that brokers remember in a partition (KIP-98)."""
RETRY_BACKOFF_S: Final = 0.1
"""Java's retry.backoff.ms."""

MOVED: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
    )
)
"""The partition has another leader, or soon will have: ask for it."""
RETRIABLE: Final = MOVED | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}
_MAY_HAVE_ARRIVED: Final = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)


class Then(Enum):
    """The next step of the connection's owner after an answer."""

    GO_ON = "send the next batches"
    FIND_LEADER = "the partition has another leader"
    NEW_EPOCH = "get a new producer id or epoch, then call `restart_sequences`"


@dataclass(slots=True, eq=False)
class Batch:
    """One batch with its place in the producer's sequence."""

    due_s: float
    sequence: int
    tries: int = 0
    may_have_arrived: bool = False
    """One of its tries has no answer, or an answer that leaves open whether the batch was appended."""


class Pipeline:
    """Call `queue_batch` for a batch, `next_batch` until None, `record_answer` for the answers in order of sending."""

    def __init__(
        self,
        tally: Tally,
        *,
        records_per_batch: int,
        batch_bytes: int,
        delivery_timeout_s: float,
        most_ahead: int = MOST_AHEAD,
        new_on_error: bool = False,
    ) -> None:
        self._tally = tally
        self._records = records_per_batch
        self._bytes = batch_bytes
        self._delivery_timeout_s = delivery_timeout_s
        self._most_ahead = most_ahead
        self._new_on_error = new_on_error
        self._waiting: deque[float] = deque()
        self._unacked: deque[Batch] = deque()
        self._again: deque[Batch] = deque()
        """Unacknowledged batches to be sent again before any new one."""
        self._in_flight: deque[Batch] = deque()
        self._sequence = 0
        self._has_failed = False
        self._needs_new_epoch = False
        self.resume_s = 0.0
        """Nothing is sent before this time, because of the throttle time of an answer."""

    @property
    def is_quiet(self) -> bool:
        """Return whether all batches are acknowledged or given up."""
        return not self._waiting and not self._unacked

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def needs_new_epoch(self) -> bool:
        return self._needs_new_epoch and not self._in_flight

    def queue_batch(self, due_s: float) -> None:
        """Queue a batch to be sent at its due time, or as soon afterwards as possible."""
        self._tally.count_due(due_s)
        self._waiting.append(due_s)

    def next_batch(self, now_s: float) -> Batch | None:
        """Return the batch to be sent now, counted as sent; None without one, or while none may be sent."""
        if now_s < self.resume_s:
            return None
        if self._has_failed:
            if self._in_flight:
                return None
            self._has_failed = False
            self._again = deque(self._unacked)
        self._give_up_overdue(now_s)
        if self._needs_new_epoch:
            return None
        batch = self._again.popleft() if self._again else self._new_batch()
        if batch is None:
            return None
        if batch.tries == 0:
            self._tally.count_first_send(batch.due_s, now_s)
        batch.tries += 1
        self._tally.requests += 1
        self._tally.resent += batch.tries > 1
        self._in_flight.append(batch)
        return batch

    def _new_batch(self) -> Batch | None:
        if not self._waiting or not self.has_room:
            return None
        batch = Batch(self._waiting.popleft(), self._sequence)
        self._sequence = self._sequence + self._records & MAX_SEQUENCE
        self._unacked.append(batch)
        return batch

    @property
    def has_room(self) -> bool:
        """Return whether a batch that is queued now may be sent before another answer."""
        # By sequence, not by the number in flight: the broker recognizes a repetition only among the last five
        # batches that it has appended.
        if not self._unacked:
            return True
        ahead = self._sequence - self._unacked[0].sequence & MAX_SEQUENCE
        return ahead < self._most_ahead * self._records

    def _give_up_overdue(self, now_s: float) -> None:
        overdue_s = now_s - self._delivery_timeout_s
        while self._waiting and self._waiting[0] < overdue_s:
            self._tally.count_lost(self._waiting.popleft())
        while self._again and self._again[0].due_s < overdue_s:
            self._lose(self._again.popleft())

    def _lose(self, batch: Batch) -> None:
        self._unacked.remove(batch)
        self._tally.count_lost(batch.due_s)
        # Its sequence is missing in the log: the broker would refuse all later ones.
        self._needs_new_epoch = True

    def record_answer(self, error_code: int, throttle_time_ms: int, arrived_s: float) -> Then:
        """Apply the answer to the oldest batch in flight."""
        batch = self._in_flight.popleft()
        self._tally.count_throttle(throttle_time_ms)
        # A producer that is recreated after an error does not know the throttle time of the old one.
        if throttle_time_ms and not (error_code and self._new_on_error):
            self.resume_s = max(self.resume_s, arrived_s + throttle_time_ms / 1_000)
        if error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._unacked.remove(batch)
            self._tally.count_acknowledged(batch.due_s, arrived_s, self._records, self._bytes)
            return self._then(Then.GO_ON)
        self._tally.count_refusal(error_code, has_throttle=throttle_time_ms > 0)
        batch.may_have_arrived |= error_code in _MAY_HAVE_ARRIVED
        self._fail(arrived_s)
        # Out of order behind a refused batch is a consequence of that refusal; otherwise the sequence is lost.
        follows_a_failed_one = error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and (
            self._needs_new_epoch or self._unacked[0] is not batch
        )
        if error_code not in RETRIABLE and not follows_a_failed_one:
            self._lose(batch)
        elif self._new_on_error:
            self._needs_new_epoch = True
        return self._then(Then.FIND_LEADER if error_code in MOVED else Then.GO_ON)

    def record_disconnect(self, now_s: float) -> Then:
        """Stop waiting for the answers to all batches in flight."""
        for batch in self._in_flight:
            batch.may_have_arrived = True
        self._in_flight.clear()
        self._fail(now_s)
        self._needs_new_epoch |= self._new_on_error
        return self._then(Then.FIND_LEADER)

    def _fail(self, now_s: float) -> None:
        self._has_failed = True
        self.resume_s = max(self.resume_s, now_s + RETRY_BACKOFF_S)

    def _then(self, otherwise: Then) -> Then:
        return Then.NEW_EPOCH if self.needs_new_epoch else otherwise

    def restart_sequences(self) -> None:
        """Renumber the unacknowledged batches under a new id or epoch. Only when `needs_new_epoch`."""
        self._needs_new_epoch = False
        self._has_failed = False
        self._sequence = 0
        for batch in self._unacked:
            self._tally.possibly_doubled += batch.may_have_arrived
            batch.may_have_arrived = False
            batch.sequence = self._sequence
            self._sequence = self._sequence + self._records & MAX_SEQUENCE
        self._again = deque(self._unacked)

    def end_run(self, end_s: float) -> None:
        """Count all unacknowledged batches as unfinished."""
        for due_s in (*(batch.due_s for batch in self._unacked), *self._waiting):
            self._tally.count_unfinished(due_s, end_s)
        self._unacked.clear()
        self._waiting.clear()
