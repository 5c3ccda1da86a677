"""Blocks of producer ids that the controller hands out to brokers (KIP-730), as the given ids show. PURE."""

from __future__ import annotations

from typing import Final

from pidgate.quota.counters import Minutes
from pidgate.quota.decisions import IDS_OF_BLOCK

HOURS_OF_YEAR: Final = 8_766
BLOCKS: Final = (1 << 63) // IDS_OF_BLOCK
"""Ids go up to Long.MAX_VALUE."""


class IdBlocks:
    """Number of the newest block in the cluster, and how many were handed out in the last hour.

    The controller hands out one after the other, so blocks of producers that bypass the gateway count as well. A block
    that a broker had before it gave its first id here may be old, and does not count.
    """

    __slots__ = ("_begun", "_node_ids", "newest")

    def __init__(self) -> None:
        self.newest = -1
        """-1: no id was given yet."""
        self._begun = Minutes()
        self._node_ids: set[int | None] = set()

    def note_given(self, node_id: int | None, producer_id: int, now_ms: int) -> None:
        """Note a new id that this broker gave; None: the connection leads to any broker."""
        block = producer_id // IDS_OF_BLOCK
        if block > self.newest:
            if node_id in self._node_ids:
                self._begun.count(now_ms, block - self.newest)
            self.newest = block
        self._node_ids.add(node_id)

    def begun_1h(self, now_ms: int) -> int:
        return sum(self._begun.of_hour(now_ms))

    def years_left(self, now_ms: int) -> int | None:
        """Return for how long the ids last at the last hour's rate; None: no block was handed out in it."""
        begun = self.begun_1h(now_ms)
        return (BLOCKS - self.newest - 1) // (begun * HOURS_OF_YEAR) if begun else None
