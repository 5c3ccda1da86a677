"""Owners of producer ids, and ids never used: learnt from InitProducerId and EndTxn answers. PURE.

For operators only; no decision is made from it. At most the latest 40,000 ids are kept, at least half of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from pidgate.quota.entities import User

MOST_OWNED_IDS = 40_000
"""About 2.5 MB, in two dicts just below the size at which they double; forty blocks of 1,000 (KIP-730)."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The user an id was given to, its latest known epoch, and whether a Produce with it was seen."""

    user: User
    epoch: int
    produced: bool = False


@lru_cache(maxsize=4_096)
def _shared(owner: Owner) -> Owner:
    """Return one object for all ids with equal owners: saves most of the table's memory."""
    return owner


class ProducerIdOwners:
    """Owners by producer id, and the ids given on each connection that is open.

    In two generations, each of half the size: when the recent one is full, it becomes the earlier one and that
    is forgotten. So there is no order to be kept for each id.
    """

    def __init__(self) -> None:
        self._recent: dict[int, Owner] = {}
        self._earlier: dict[int, Owner] = {}
        self._given: dict[int, list[int]] = {}

    def learnt(self, user: User, producer_id: int, epoch: int, connection_id: int) -> None:
        """Note that an answer on that connection gave the id to the user, or bumped its epoch."""
        owner = self.owner(producer_id)
        if len(self._recent) >= MOST_OWNED_IDS // 2:
            self._forget_earlier()
        if owner is None:
            self._given.setdefault(connection_id, []).append(producer_id)
        self._earlier.pop(producer_id, None)
        self._recent[producer_id] = _shared(Owner(user, epoch, owner is not None and owner.produced))

    def produced(self, producer_id: int) -> None:
        """Note a Produce request with the id, on whatever connection."""
        for generation in (self._recent, self._earlier):
            owner = generation.get(producer_id)
            if owner is not None and not owner.produced:
                generation[producer_id] = _shared(replace(owner, produced=True))

    def owner(self, producer_id: int) -> Owner | None:
        return self._recent.get(producer_id) or self._earlier.get(producer_id)

    def connection_closed(self, connection_id: int) -> dict[User, int]:
        """Return how many ids given on it were never used, by user; ids beyond the table are not counted."""
        unused: dict[User, int] = {}
        for producer_id in self._given.pop(connection_id, ()):
            owner = self.owner(producer_id)
            if owner is not None and not owner.produced:
                unused[owner.user] = unused.get(owner.user, 0) + 1
        return unused

    def _forget_earlier(self) -> None:
        """A connection's list is bounded with the table: one connection may be given millions."""
        self._earlier, self._recent = self._recent, {}
        for connection_id, given in list(self._given.items()):
            kept = [producer_id for producer_id in given if producer_id in self._earlier]
            if kept:
                self._given[connection_id] = kept
            else:
                del self._given[connection_id]
