"""Room for the ids that StickyRefusals watches, and for what is noted of their partitions. PURE.

What is refused here is never left out: without room its connection is closed instead, which is always safe. So ids
that are watched for another reason have half of the room only, and are left out beyond it.

Notes of partitions may be forgotten at any time: where something was forwarded last, and where an entry was cut off,
that is, ended with its connection. Without a note nothing is known of its partition (Look.FIRST_SIGHT), so a batch
above 0 is refused once more, for 100 ms, and one that comes back may lose its place in the queue. Forgetting the watch
or an entry would do the opposite, and let a batch pass before one that was refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence, Sized
from typing import Final

from pidgate.quota.entities import MOST_USERS, User

WATCHED_IDS_PER_USER = 50_000
"""About 20 MB."""

MOST_WATCHED: Final = 500_000
"""Of all users, about 200 MB; of these, too, a user has at most as many as are left free for everybody else."""

MOST_WATCHED_USERS: Final = MOST_USERS

MOST_WATCHED_WHEN_ADMITTED: Final = 5_000
"""Of one user, so that admissions leave room for refusals."""

MOST_ADMITTED_WATCHED = 10_000
"""Of all users, in a period: about 9 MB. Thousands of users may bring millions of ids in an hour, each paid for."""

MOST_NOTED_WATCHED: Final = 50_000
"""Ids watched only for a noted beginning (HeldBeginnings), of all users, in a period: about 45 MB."""

MOST_CUT_OF_USER: Final = 20_000
"""About 5 MB. They cost a client nothing: a request that is refused, and a connection that is closed."""

MOST_CUT_AT_ONCE = 1_000
"""Of a connection that closes. To note more takes as long as to end all of its entries."""

MOST_CUT: Final = 200_000
"""Of all users, about 50 MB."""

MOST_FORWARDED_OF_USER: Final = 500_000
"""About 45 MB: 5,000 producers that begin within minutes, with a hundred partitions each."""

MOST_FORWARDED: Final = 2_000_000
"""Of all users, about 180 MB."""


class WatchRoom:
    """The room that is left. `ids`: how many are watched, of all users; `watched`: the ids by user.

    A period is as long as an id is watched.
    """

    def __init__(self, watched: Mapping[User, Sized]) -> None:
        self.ids = 0
        self._watched = watched
        self._admitted = self._noted = self._period = 0

    def has(self, user: User, new_ids: int, *, elsewhere: bool = False) -> bool:
        """Return whether so many more ids of the user may be watched. `elsewhere`: none of them was refused here."""
        share = 2 if elsewhere else 1
        records = self._watched.get(user)
        if records is None and len(self._watched) >= MOST_WATCHED_USERS // share:
            return False
        most = min(WATCHED_IDS_PER_USER // share, MOST_WATCHED // share - self.ids - new_ids)
        return (0 if records is None else len(records)) + new_ids <= most

    def take_admitted(self, user: User, period: int) -> bool:
        """Return whether an id that was admitted may be watched, and count it."""
        self._begin(period)
        found = (
            self._admitted < MOST_ADMITTED_WATCHED
            and len(self._watched.get(user, ())) < MOST_WATCHED_WHEN_ADMITTED
            and self.has(user, 1, elsewhere=True)
        )
        self._admitted += found
        return found

    def take_noted(self, user: User, period: int) -> bool:
        """Return whether an id of which a beginning is noted may be watched, and count it."""
        self._begin(period)
        found = self._noted < MOST_NOTED_WATCHED and self.has(user, 1, elsewhere=True)
        self._noted += found
        return found

    def _begin(self, period: int) -> None:
        if period != self._period:
            self._period = period
            self._admitted = self._noted = 0


class NoteRoom:
    """Bounded count of one kind of note, by user and id: the ids that have had some for the longest are forgotten.

    A user has at most `most_of_user`, and at most as many as are left free for everybody else: nobody's notes are
    forgotten for another's.
    """

    def __init__(self, most_of_user: int, most_of_all: int) -> None:
        self.notes = 0
        self._most_of_user, self._most_of_all = most_of_user, most_of_all
        self._of_user: dict[User, OrderedDict[int, int]] = {}
        self._notes_of_user: dict[User, int] = {}

    def count(self, user: User, producer_id: int, notes: int) -> Sequence[int]:
        """Set how many notes there are of the id; return the ids whose notes now have to be forgotten."""
        by_id = self._of_user.get(user)
        before = 0 if by_id is None else by_id.get(producer_id, 0)
        if notes == before:
            return ()
        if by_id is None:
            by_id = self._of_user[user] = OrderedDict()
        self._add(user, notes - before)
        if notes:
            by_id[producer_id] = notes
        else:
            del by_id[producer_id]
        forgotten: list[int] = []
        while notes > before and self._has_too_many(user):
            oldest, gone = by_id.popitem(last=False)
            self._add(user, -gone)
            forgotten.append(oldest)
        if not by_id:
            del self._of_user[user], self._notes_of_user[user]
        return forgotten

    def notes_of(self, user: User) -> int:
        """Return the number of the user's notes."""
        return self._notes_of_user.get(user, 0)

    def _has_too_many(self, user: User) -> bool:
        return self._notes_of_user[user] > min(self._most_of_user, self._most_of_all - self.notes)

    def _add(self, user: User, notes: int) -> None:
        self.notes += notes
        self._notes_of_user[user] = self._notes_of_user.get(user, 0) + notes


def room_for_cut() -> NoteRoom:
    """Return the room for entries that were cut off."""
    return NoteRoom(MOST_CUT_OF_USER, MOST_CUT)


def room_for_forwarded() -> NoteRoom:
    """Return the room for partitions of which something was forwarded."""
    return NoteRoom(MOST_FORWARDED_OF_USER, MOST_FORWARDED)
