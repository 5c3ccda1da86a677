"""Table of refused producer ids: why each was refused, what counts when it comes back, and which are released. PURE.

Processes that own connections hold what must not pass (sticky.py). This table keeps a decision the same through
whichever process an id comes back, and explains refusals. Losing an entry, or one of its batches, costs the id its
place in the queue, never a record.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from pidgate.quota.entities import User
from pidgate.quota.sticky import WATCH_MS
from pidgate.quota.verdicts import Bound, Reason

MOST_EXPLAINED: Final = 10_000
"""Ids of all users together: about 5 MB. The longest unseen is forgotten first."""
MOST_SHARED: Final = 200_000
"""The same where several processes own the connections, for as long as WATCH_MS."""
MOST_USERS: Final = 10_000
"""A user with many refused ids pushes out other users' ids, but no other user's last refusal."""
MOST_BATCHES_OF_ID: Final = 32
"""A client has one first batch on its way to each broker; partitions, topics and epochs it can make up."""
MOST_FURTHER_BATCHES: Final = 50_000
"""Beyond one for each id, of all ids together: at most 25 MB, with the longest names of topics. Those of the id whose
refusal is the longest ago are forgotten first.
"""
MOST_RELEASED: Final = 10_000
"""Released ids that have not come back; the oldest release is forgotten first."""

BatchKey = tuple[int, bytes, int]
"""Epoch, topic and partition."""


@dataclass(slots=True)
class Refusal:
    """The last refusal of one producer id. Times are monotonic milliseconds.

    reason            None: it was not refused on its own account here (only its request, or by another gateway)
    rate_milli        the bound that stood in the way, in thousandths of an id per window
    until_ms          end of the throttle that was answered
    watched_ms        when it was last refused anywhere; `refused_ms`: by this state
    first_refused_ms  None when it has been admitted since; otherwise `deadline_ms` and `batches` count:
    deadline_ms       end of its longest throttle
    batches           refused base sequence by epoch, topic and partition, the latest last

    Of the batches the latest are kept, as many as there is room for (RefusedIds.came). An id that comes back with one
    that was forgotten gets no place in the queue for it, unless the process that asks knows the batch; its deadline
    holds all the same.
    """

    producer_id: int
    watched_ms: int
    reason: Reason | None = None
    bound: Bound = Bound.USER
    rate_milli: int | None = None
    until_ms: int = 0
    queue_position: int | None = None
    refused_ms: int = 0
    first_refused_ms: int | None = None
    deadline_ms: int = 0
    batches: dict[BatchKey, int] = field(default_factory=dict)


class RefusedIds:
    """Refusals by user and id, in the order of the latest one. `limit`: how many."""

    __slots__ = ("_further_batches", "_ids", "_of_user", "_released", "_with_further", "limit")

    def __init__(self) -> None:
        self.limit = MOST_EXPLAINED
        self._further_batches = 0
        self._with_further: OrderedDict[tuple[User, int], Refusal] = OrderedDict()
        self._ids: OrderedDict[tuple[User, int], Refusal] = OrderedDict()
        self._of_user: OrderedDict[User, Refusal] = OrderedDict()
        self._released: OrderedDict[tuple[User, int], None] = OrderedDict()

    def refused(self, user: User, producer_id: int, now_ms: int) -> Refusal:
        """Note a refusal by this state, whose details are the caller's to fill in."""
        record = self.watched(user, producer_id, now_ms)
        if record.first_refused_ms is not None and now_ms - record.refused_ms >= WATCH_MS:
            self._forget_wait((user, producer_id), record)
        if record.first_refused_ms is None:
            record.first_refused_ms = now_ms
        record.refused_ms = now_ms
        return record

    def came(self, user: User, record: Refusal, batch: BatchKey, base_sequence: int) -> None:
        """Note which batch was refused, so that the id is known when it comes back with it.

        Clients choose its epoch, topic and partition, so their number is bounded: for each id, and for all ids beyond
        one of each.
        """
        batches = record.batches
        before = len(batches)
        batches.pop(batch, None)
        if len(batches) >= MOST_BATCHES_OF_ID:
            del batches[next(iter(batches))]
        batches[batch] = base_sequence
        if len(batches) == 1:
            return
        key = (user, record.producer_id)
        self._with_further[key] = record
        self._with_further.move_to_end(key)
        self._further_batches += len(batches) - before
        while self._further_batches > MOST_FURTHER_BATCHES:
            _, oldest = self._with_further.popitem(last=False)
            self._further_batches -= len(oldest.batches) - 1
            oldest.batches = dict([oldest.batches.popitem()])

    def explained(self, user: User, record: Refusal) -> None:
        """Note the user's last refusal."""
        self._of_user[user] = record
        self._of_user.move_to_end(user)
        if len(self._of_user) > MOST_USERS:
            self._of_user.popitem(last=False)

    def watched(self, user: User, producer_id: int, now_ms: int) -> Refusal:
        """Note a refusal anywhere: every process has to watch the id for WATCH_MS."""
        key = (user, producer_id)
        record = self._ids.get(key)
        if record is None:
            record = self._ids[key] = Refusal(producer_id, now_ms)
            if len(self._ids) > self.limit:
                self._drop_oldest()
        else:
            record.watched_ms = now_ms
            self._ids.move_to_end(key)
        return record

    def admitted(self, user: User, producer_id: int) -> None:
        """End the id's wait, and its release."""
        key = (user, producer_id)
        if self._ids and (record := self._ids.get(key)) is not None:
            self._forget_wait(key, record)
        if self._released:
            self._released.pop(key, None)

    def waiting(self, user: User, producer_id: int, now_ms: int) -> Refusal | None:
        """Return the refusal after which the id has to come back; None without one in the last WATCH_MS."""
        record = self._ids.get((user, producer_id))
        if record is None or record.first_refused_ms is None or now_ms - record.refused_ms >= WATCH_MS:
            return None
        return record

    def is_watched(self, user: User, producer_id: int, now_ms: int) -> bool:
        """Return whether the id was refused anywhere in the last WATCH_MS."""
        record = self._ids.get((user, producer_id))
        return record is not None and now_ms - record.watched_ms < WATCH_MS

    def to_watch(self, now_ms: int) -> list[tuple[User, int]]:
        """Return the ids refused anywhere in the last WATCH_MS, oldest first."""
        return [
            key
            for key, record in self._ids.items()
            if record.producer_id >= 0 and now_ms - record.watched_ms < WATCH_MS
        ]

    def sweep(self, now_ms: int) -> None:
        """Forget what is over; the last MOST_EXPLAINED stay."""
        while len(self._ids) > MOST_EXPLAINED:
            oldest = next(iter(self._ids.values()))
            if now_ms - oldest.watched_ms < WATCH_MS:
                return
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Forget the refusal that is the longest ago; its user's last one may still explain."""
        self._forget_wait(*self._ids.popitem(last=False))

    def _forget_wait(self, key: tuple[User, int], record: Refusal) -> None:
        """Keep only what explains the refusal."""
        if self._with_further.pop(key, None) is not None:
            self._further_batches -= len(record.batches) - 1
        record.first_refused_ms, record.deadline_ms, record.batches = None, 0, {}

    # Explanations

    def of_user(self, user: User) -> Refusal | None:
        """Return the user's last refusal, of whichever id."""
        return self._of_user.get(user)

    def of_id(self, user: User, producer_id: int) -> Refusal | None:
        """Return the id's last refusal."""
        record = self._ids.get((user, producer_id))
        return None if record is None or record.reason is None else record

    # Releases

    def release(self, user: User, producer_id: int) -> None:
        """Have the id admitted uncharged when it comes back, once."""
        self._released[user, producer_id] = None
        if len(self._released) > MOST_RELEASED:
            self._released.popitem(last=False)

    def is_released(self, user: User, producer_id: int) -> bool:
        """Return whether the id is released and has not come back."""
        return bool(self._released) and (user, producer_id) in self._released
