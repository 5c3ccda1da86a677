"""Producer ids that an operator lets in: each is admitted uncharged when it comes back, once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from pidgate.quota.entities import User

MOST_RELEASED: Final = 10_000
"""That have not come back yet; the oldest release is forgotten first."""


class Releases:
    """Ids by user, until they are admitted."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[User, int], None] = OrderedDict()

    def add(self, user: User, producer_id: int) -> None:
        self._ids[user, producer_id] = None
        if len(self._ids) > MOST_RELEASED:
            self._ids.popitem(last=False)

    def holds(self, user: User, producer_id: int) -> bool:
        return bool(self._ids) and (user, producer_id) in self._ids

    def drop(self, user: User, producer_id: int) -> None:
        """It is admitted now."""
        if self._ids:
            self._ids.pop((user, producer_id), None)
