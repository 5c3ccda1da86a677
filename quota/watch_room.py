"""Room for the ids that StickyRefusals watches: of a user, of all users, and of those not refused here. PURE.

What is refused here is never left out: without room its connection is closed instead, which is always safe. So ids
that are watched for another reason have half of the room only, and are left out beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized

from pidgate.quota.entities import MOST_USERS, User

WATCHED_IDS_PER_USER = 50_000
"""About 20 MB."""

MOST_WATCHED = 500_000
"""Of all users, about 200 MB; of these, too, a user has at most as many as are left free for everybody else."""

MOST_WATCHED_USERS = MOST_USERS

MOST_WATCHED_WHEN_ADMITTED = 5_000
"""Of one user, so that admissions leave room for refusals."""

MOST_ADMITTED_WATCHED = 10_000
"""Of all users, in a period: about 9 MB. Thousands of users may bring millions of ids in an hour, each paid for."""

MOST_NOTED_WATCHED = 50_000
"""Ids watched only for a noted beginning (HeldBeginnings), of all users, in a period: about 45 MB."""


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
