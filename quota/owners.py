"""Who was given which producer id, and which ids were never used: learnt from InitProducerId and EndTxn
answers.

For operators only; no decision is made from it. The latest 100,000 ids are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from quota.entities import User

MOST_OWNED_IDS = 100_000
"""About 15 MB; a hundred blocks of 1,000 (KIP-730)."""


@dataclass(slots=True)
class Owner:
    """The user an id was given to, its latest known epoch, and whether a Produce with it was seen."""

    user: User
    epoch: int
    produced: bool = False


class ProducerIdOwners:
    """Owners by producer id, and the unused ids of each connection that is open."""

    def __init__(self) -> None:
        self._owners: OrderedDict[int, Owner] = OrderedDict()
        self._unused: dict[int, dict[int, User]] = {}

    def learnt(self, user: User, producer_id: int, epoch: int, connection_id: int) -> None:
        """An answer on that connection gave the id to the user, or bumped its epoch."""
        owner = self._owners.get(producer_id)
        if owner is None:
            self._owners[producer_id] = Owner(user, epoch)
            self._unused.setdefault(connection_id, {})[producer_id] = user
        else:
            owner.user, owner.epoch = user, epoch
            self._owners.move_to_end(producer_id)
        while len(self._owners) > MOST_OWNED_IDS:
            self._owners.popitem(last=False)

    def produced(self, producer_id: int) -> None:
        """A Produce request with the id was seen, on whatever connection."""
        owner = self._owners.get(producer_id)
        if owner is not None:
            owner.produced = True

    def owner(self, producer_id: int) -> Owner | None:
        return self._owners.get(producer_id)

    def connection_closed(self, connection_id: int) -> dict[User, int]:
        """Ids given on it and not produced with until now, by user. What fell out of the table is not
        counted.
        """
        unused: dict[User, int] = {}
        for producer_id, user in self._unused.pop(connection_id, {}).items():
            owner = self._owners.get(producer_id)
            if owner is not None and not owner.produced:
                unused[user] = unused.get(user, 0) + 1
        return unused
