"""What is remembered of refusals so that the events about them can be told: how many, and whose. PURE."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from pidgate.quota.entities import User

REFUSALS_PER_S: Final = 10
"""Of one user, with `refusals: sampled`."""
MOST_USERS: Final = 10_000
MOST_REFUSED_IDS: Final = 20_000
"""About 6 MB; of the ids beyond them the attempts are not known."""


class RefusalSamples:
    """At most REFUSALS_PER_S refusals of a user are told; the next one that is says how many were left out."""

    def __init__(self) -> None:
        self._users: OrderedDict[User, list[int]] = OrderedDict()

    def take(self, user: User, now_ms: int) -> int | None:
        """How many refusals were left out since the last one that was told; None: leave this one out, too."""
        second = now_ms // 1000
        sample = self._users.get(user)
        if sample is None:
            sample = self._users[user] = [second, 0, 0]
            if len(self._users) > MOST_USERS:
                self._users.popitem(last=False)
        if sample[0] != second:
            sample[0], sample[1] = second, 0
        if sample[1] >= REFUSALS_PER_S:
            sample[2] += 1
            return None
        sample[1] += 1
        suppressed, sample[2] = sample[2], 0
        return suppressed


class Refused(NamedTuple):
    """An id that was refused and has not been admitted."""

    attempts: int
    client_id: str
    address: str


class RefusedIds:
    """Counts refusals id by id; the id that was refused longest ago is forgotten first."""

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[User, int], Refused] = OrderedDict()

    def refused(self, user: User, producer_id: int, client_id: str, address: str) -> None:
        key = (user, producer_id)
        known = self._ids.pop(key, None)
        self._ids[key] = Refused(known.attempts + 1 if known else 1, client_id, address)
        if len(self._ids) > MOST_REFUSED_IDS:
            self._ids.popitem(last=False)

    def ended(self, user: User, producer_id: int) -> Refused | None:
        """It was admitted or gave up; None: nothing is known of it."""
        return self._ids.pop((user, producer_id), None)
