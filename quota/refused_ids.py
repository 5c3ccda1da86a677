"""Table of refused producer ids: why each was refused, what counts when it comes back, and which are released. PURE.

Processes that own connections hold what must not pass (sticky.py). This table keeps a decision the same through
whichever process an id comes back, and explains refusals. Losing an entry costs the id its place in the queue, never
a record.
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
MOST_RELEASED: Final = 10_000
"""Released ids that have not come back; the oldest release is forgotten first."""


@dataclass(slots=True)
class Refusal:
    """The last refusal of one producer id. Times are monotonic milliseconds.

    reason            None: it was not refused on its own account here (only its request, or by another gateway)
    rate_milli        the bound that stood in the way, in thousandths of an id per window
    until_ms          end of the throttle that was answered
    watched_ms        when it was last refused anywhere; `refused_ms`: by this state
    first_refused_ms  None when it has been admitted since; otherwise `deadline_ms` and `batches` count:
    deadline_ms       end of its longest throttle
    batches           refused base sequence by epoch, topic and partition
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
    batches: dict[tuple[int, bytes, int], int] = field(default_factory=dict)

    def forget_wait(self) -> None:
        """Keep only what explains the refusal."""
        self.first_refused_ms, self.deadline_ms, self.batches = None, 0, {}


class RefusedIds:
    """Refusals by user and id, in the order of the latest one. `limit`: how many."""

    __slots__ = ("_ids", "_of_user", "_released", "limit")

    def __init__(self) -> None:
        self.limit = MOST_EXPLAINED
        self._ids: OrderedDict[tuple[User, int], Refusal] = OrderedDict()
        self._of_user: OrderedDict[User, Refusal] = OrderedDict()
        self._released: OrderedDict[tuple[User, int], None] = OrderedDict()

    def refused(self, user: User, producer_id: int, now_ms: int) -> Refusal:
        """Note a refusal by this state, whose details are the caller's to fill in."""
        record = self.watched(user, producer_id, now_ms)
        if record.first_refused_ms is not None and now_ms - record.refused_ms >= WATCH_MS:
            record.forget_wait()
        if record.first_refused_ms is None:
            record.first_refused_ms = now_ms
        record.refused_ms = now_ms
        return record

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
                self._ids.popitem(last=False)
        else:
            record.watched_ms = now_ms
            self._ids.move_to_end(key)
        return record

    def admitted(self, user: User, producer_id: int) -> None:
        """End the id's wait, and its release."""
        key = (user, producer_id)
        if self._ids and (record := self._ids.get(key)) is not None:
            record.forget_wait()
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
            key = next(iter(self._ids))
            if now_ms - self._ids[key].watched_ms < WATCH_MS:
                return
            del self._ids[key]

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
