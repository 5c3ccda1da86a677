"""Marks of every producer id, one byte each, exact. Pure.

A producer id belongs to one user and one cluster, and ids are allocated in order, in blocks of 1,000 per
broker (KIP-730). One table of blocks for all users therefore holds a million ids in a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pidgate.quota.decisions import IDS_OF_BLOCK

MOST_BLOCKS: Final = 100_000
"""100 MB at worst: every id in a block of its own. Ids in further blocks are counted as `beyond`."""


class Mark:
    """Bits for the events of an id within the window. Plain numbers, because they are set for every event."""

    NEW: Final = 1  # created: an unseen id was admitted or refused
    ADMITTED: Final = 2  # as a new one
    REFUSED: Final = 4  # at least once
    WOULD_REFUSE: Final = 8  # forwarded, but enforcing would have refused it
    ALLOCATED: Final = 16  # allocated, for the first time, in an answer that passed a gateway
    USED: Final = 32  # used in an attempt to produce, of any kind
    TRANSACTIONAL: Final = 64
    BUMPED: Final = 128  # seen with an epoch above 0


class IdMarks:
    """Marks by producer id. `beyond`: marks without room; each of them counts as an id of its own."""

    __slots__ = ("_blocks", "beyond")

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}
        self.beyond = 0

    def mark(self, producer_id: int, marks: int) -> int:
        """Set marks; return the earlier marks of the id."""
        number = producer_id // IDS_OF_BLOCK
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= MOST_BLOCKS:
                self.beyond += 1
                return 0
            block = self._blocks[number] = bytearray(IDS_OF_BLOCK)
        place = producer_id - number * IDS_OF_BLOCK
        before = block[place]
        block[place] = before | marks
        return before

    def of(self, producer_id: int) -> int:
        """Return the marks of one id; 0 when it is unknown."""
        block = self._blocks.get(producer_id // IDS_OF_BLOCK)
        return 0 if block is None else block[producer_id % IDS_OF_BLOCK]

    def blocks(self) -> Iterator[tuple[int, bytearray]]:
        """Yield number and marks of each block, by number."""
        yield from sorted(self._blocks.items())
