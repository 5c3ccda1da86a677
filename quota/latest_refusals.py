"""Why users and ids were refused last, and until when: for whoever asks "why?". Nothing is decided by it.

Bounded: what was refused longest ago is forgotten first. A user who has many ids refused may so push out what is
known of other users' ids, never what is known of those users themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, TypeVar

from pidgate.quota.entities import User
from pidgate.quota.verdicts import Bound, Reason

MOST_IDS: Final = 10_000
"""Of all users together: about 4 MB."""
MOST_USERS: Final = 10_000

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class LatestRefusal:
    """The last one of an id. Times are monotonic milliseconds; `until_ms`: the throttle that was told.

    `rate_milli`: the bound that stood in the way, in thousandths of an id per window.
    """

    producer_id: int
    reason: Reason
    bound: Bound
    rate_milli: int | None
    refused_ms: int
    until_ms: int
    queue_position: int | None


class LatestRefusals:
    """By id, and by user."""

    __slots__ = ("_of_id", "_of_user")

    def __init__(self) -> None:
        self._of_id: OrderedDict[tuple[User, int], LatestRefusal] = OrderedDict()
        self._of_user: OrderedDict[User, LatestRefusal] = OrderedDict()

    def note(self, user: User, refusal: LatestRefusal) -> None:
        """A refusal that has just been decided."""
        _put(self._of_id, (user, refusal.producer_id), refusal, MOST_IDS)
        _put(self._of_user, user, refusal, MOST_USERS)

    def of_user(self, user: User) -> LatestRefusal | None:
        """Whichever id of the user it was."""
        return self._of_user.get(user)

    def of_id(self, user: User, producer_id: int) -> LatestRefusal | None:
        return self._of_id.get((user, producer_id))


def _put(table: OrderedDict[_Key, LatestRefusal], key: _Key, refusal: LatestRefusal, most: int) -> None:
    table[key] = refusal
    table.move_to_end(key)
    if len(table) > most:
        table.popitem(last=False)
