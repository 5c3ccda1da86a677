"""Portions of a table, one after the other, for work that is done once a second or so. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

PORTION: Final = 1_000
"""Users that one sweep looks at: some 5 us each. With more of them a round takes as many seconds longer."""


class Portions(Generic[K]):
    """The keys of a table that are left in a round."""

    def __init__(self, most: int = PORTION) -> None:
        self._most = most
        self._left: list[K] = []

    def of(self, table: Mapping[K, V]) -> list[tuple[K, V]]:
        """Return the next portion of the table, which may have changed since the last; of a small one, all of it."""
        if not self._left:
            self._left = list(reversed(list(table)))
        keys = self._left[-self._most :]
        del self._left[-self._most :]
        return [(key, table[key]) for key in reversed(keys) if key in table]
