"""Table of refused producer ids: why each one was refused, and which ids an operator has released. PURE.

It explains refusals. What must not pass before a refused batch is in sticky.py. Losing an entry costs an explanation,
never a record.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from pidgate.quota.entities import User
from pidgate.quota.verdicts import Bound, Reason

MOST_EXPLAINED: Final = 10_000
"""Ids of all users together: about 5 MB. The longest unseen is forgotten first."""
MOST_USERS: Final = 10_000
"""A user with many refused ids pushes out other users' ids, but no other user's last refusal."""
MOST_RELEASED: Final = 10_000
"""Released ids that have not come back; the oldest release is forgotten first."""


@dataclass(slots=True)
class Refusal:
    """The last refusal of one producer id. Times are monotonic milliseconds.

    rate_milli   the bound that stood in the way, in thousandths of an id per window
    until_ms     end of the throttle in the answer
    """

    producer_id: int
    reason: Reason
    bound: Bound
    rate_milli: int | None
    refused_ms: int
    until_ms: int
    queue_position: int | None


class RefusedIds:
    """Refusals by user and id, in the order of the latest one."""

    __slots__ = ("_ids", "_of_user", "_released")

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[User, int], Refusal] = OrderedDict()
        self._of_user: OrderedDict[User, Refusal] = OrderedDict()
        self._released: OrderedDict[tuple[User, int], None] = OrderedDict()

    def note(self, user: User, refusal: Refusal) -> None:
        """Note a refusal, the user's last one."""
        key = user, refusal.producer_id
        self._ids[key] = refusal
        self._ids.move_to_end(key)
        if len(self._ids) > MOST_EXPLAINED:
            self._ids.popitem(last=False)
        self._of_user[user] = refusal
        self._of_user.move_to_end(user)
        if len(self._of_user) > MOST_USERS:
            self._of_user.popitem(last=False)

    def admitted(self, user: User, producer_id: int) -> None:
        """End the id's release."""
        if self._released:
            self._released.pop((user, producer_id), None)

    # Explanations

    def of_user(self, user: User) -> Refusal | None:
        """Return the user's last refusal, of whichever id."""
        return self._of_user.get(user)

    def of_id(self, user: User, producer_id: int) -> Refusal | None:
        """Return the id's last refusal."""
        return self._ids.get((user, producer_id))

    # Releases

    def release(self, user: User, producer_id: int) -> None:
        """Have the id admitted uncharged when it comes back, once."""
        self._released[user, producer_id] = None
        if len(self._released) > MOST_RELEASED:
            self._released.popitem(last=False)

    def is_released(self, user: User, producer_id: int) -> bool:
        """Return whether the id is released and has not come back."""
        return bool(self._released) and (user, producer_id) in self._released
