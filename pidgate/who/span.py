"""The part of the topic to read, and the part of it that counts. Pure; times are the broker's append times.

Reading starts slightly before the window and ends at the topic's end when reading began. The margin on either
side keeps events there from being counted as lost: events of one gateway reach the partitions a few
milliseconds apart, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MARGIN_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Span:
    """`from_ms`, `to_ms`: the window.

    `whole_from_ms`: from this time on no partition's beginning was deleted.
    """

    from_ms: int
    to_ms: int
    whole_from_ms: int
    records: int
    """Approximate number of records in it."""

    def holds(self, append_ms: int) -> bool:
        """Return whether an event of this time belongs to the window."""
        return append_ms >= self.from_ms

    def judges(self, append_ms: int) -> bool:
        """Return whether all events around this time were certainly read."""
        return self.whole_from_ms <= append_ms <= self.to_ms - MARGIN_MS


@dataclass(frozen=True, slots=True)
class Edge:
    """One partition: its first offset, the start of the window's margin in it, and its end.

    `start_ms` is the time of the first record from `start` on. None: there is none.
    """

    first: int
    start: int
    start_ms: int | None
    end: int


def span_of(edges: list[Edge], asked_from_ms: int, now_ms: int) -> Span:
    """Return the part of the wanted window held by these partitions."""
    times = [edge.start_ms for edge in edges if edge.start_ms is not None]
    from_ms = asked_from_ms
    if times and all(edge.start == edge.first for edge in edges):
        # The topic begins within the window: it was created then, or truncated by retention.
        from_ms = max(asked_from_ms, min(times))
    cut = [
        edge.start_ms
        for edge in edges
        if edge.start_ms is not None and edge.first > 0 and edge.start == edge.first
    ]
    return Span(from_ms, now_ms, max([from_ms, *cut]), sum(max(0, edge.end - edge.start) for edge in edges))
