"""Rows of users and buckets for a scrape, collected in turns with the traffic: there may be tens of
thousands.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

R = TypeVar("R")

ROWS_PER_TURN: Final = 50
"""Up to 1 ms."""


class SeesManyRows(ABC, Generic[R]):
    """Part of a collector. `collect_rows` collects them in turns, and the next `collect` shows them."""

    _seen: R | None = None

    @abstractmethod
    def _begin(self) -> tuple[R, Iterator[None]]:
        """Return empty rows, and the steps that fill them with one snapshot each."""

    async def collect_rows(self) -> None:
        """Collect the current rows."""
        rows, steps = self._begin()
        for number, _ in enumerate(steps, 1):
            if number % ROWS_PER_TURN == 0:
                await asyncio.sleep(0)
        self._seen = rows

    def _rows(self) -> R:
        """Return the rows of the last `collect_rows`, once. Without one, return the current rows."""
        seen, self._seen = self._seen, None
        if seen is None:
            seen, steps = self._begin()
            for _ in steps:
                pass
        return seen
