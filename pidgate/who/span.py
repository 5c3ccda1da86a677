"""The stretch of the topic to read, and the part of it that counts. Pure; times are the broker's append times.

Reading starts a little before the window and ends where the topic ended when reading began. An event of the
margin on either side is there so that its number is not taken for lost: events of one gateway reach the
partitions a few milliseconds apart, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MARGIN_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Span:
    """`from_ms`, `to_ms`: the window. `whole_from_ms`: from when on no partition's beginning was deleted."""

    from_ms: int
    to_ms: int
    whole_from_ms: int
    records: int
    """Records in it, about."""

    def holds(self, append_ms: int) -> bool:
        """Return whether an event of this time belongs to the window."""
        return append_ms >= self.from_ms

    def judges(self, append_ms: int) -> bool:
        """Return whether all events around one of this time were surely read."""
        return self.whole_from_ms <= append_ms <= self.to_ms - MARGIN_MS


@dataclass(frozen=True, slots=True)
class Edge:
    """One partition: its first offset, where the margin of the window begins in it, and its end.

    `start_ms` is the time of the first record from `start` on; None when there is none.
    """

    first: int
    start: int
    start_ms: int | None
    end: int


def span_of(edges: list[Edge], asked_from_ms: int, now_ms: int) -> Span:
    """Return the stretch that these partitions hold of the wanted window."""
    times = [edge.start_ms for edge in edges if edge.start_ms is not None]
    from_ms = asked_from_ms
    if times and all(edge.start == edge.first for edge in edges):
        # The topic begins within the window: it was made then, or retention cut it.
        from_ms = max(asked_from_ms, min(times))
    cut = [
        edge.start_ms
        for edge in edges
        if edge.start_ms is not None and edge.first > 0 and edge.start == edge.first
    ]
    return Span(from_ms, now_ms, max([from_ms, *cut]), sum(max(0, edge.end - edge.start) for edge in edges))
