"""The newest events of this gateway in memory, for `pidgate who --admin`: it answers without the events topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

MOST_BYTES: Final = 8 * 2**20
"""About 15,000 decisions."""
_OBJECT_BYTES: Final = 150
"""Of an entry besides its value."""


class RecentEvents:
    """`whole_from_wall_ms`: no event since then has been evicted."""

    def __init__(self, wall_ms: int) -> None:
        self.whole_from_wall_ms = wall_ms
        self._events: deque[tuple[int, bytes]] = deque()
        self._bytes = 0

    def add(self, value: bytes, wall_ms: int) -> None:
        """Add an event, and evict the oldest ones without room."""
        self._events.append((wall_ms, value))
        self._bytes += len(value) + _OBJECT_BYTES
        while self._bytes > MOST_BYTES:
            self.whole_from_wall_ms, evicted = self._events.popleft()
            self.whole_from_wall_ms += 1
            self._bytes -= len(evicted) + _OBJECT_BYTES

    def since(self, wall_ms: int) -> Iterator[tuple[int, bytes]]:
        """Yield the events from this time on, with the times at which they were made."""
        return (event for event in tuple(self._events) if event[0] >= wall_ms)
