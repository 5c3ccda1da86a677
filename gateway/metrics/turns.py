"""Rows of users and buckets for a scrape, taken in turns with the traffic: there may be tens of thousands."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeVar

ROWS_PER_TURN: Final = 50
"""A snapshot that several workers have a part of takes up to 50 us."""


class Rows(Protocol):
    """Rows by label, as a collector shows them."""

    def add(self, snapshot: Any, /) -> None: ...


R = TypeVar("R", bound=Rows)


class SeesManyRows(ABC):
    """Part of a collector: `look` takes the rows, in turns, and the next `collect` shows them."""

    @abstractmethod
    async def look(self) -> None: ...


async def seen_in_turns(snapshots: Iterable[object], rows: R) -> R:
    """Add all snapshots, which are made as they are asked for, and return the rows."""
    for number, snapshot in enumerate(snapshots, 1):
        rows.add(snapshot)
        if number % ROWS_PER_TURN == 0:
            await asyncio.sleep(0)
    return rows
