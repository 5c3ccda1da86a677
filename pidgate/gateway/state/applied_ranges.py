"""Ranges of the events topic applied to the state, with their time, for the next decision event. PURE.

A replay needs them: a charge applied a millisecond later finds a bucket that is fuller by a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pidgate.events.definitions import Heard
from pidgate.gateway.topics.records import EventRecord

MOST_RANGES: Final = 64
"""Bound for a gateway that applies many events and decides nothing. Older ranges of a partition are merged."""


class AppliedRanges:
    """Ranges of the topic in the order of their application."""

    def __init__(self) -> None:
        self._ranges: list[Heard] = []

    def applied(self, records: Iterable[EventRecord], now_ms: int) -> None:
        """Record that these records, with at least one decision of another gateway, were applied now."""
        found: dict[int, Heard] = {}
        for record in records:
            one = found.get(record.partition)
            if one is None:
                found[record.partition] = Heard(
                    partition=record.partition,
                    first_offset=record.offset,
                    next_offset=record.offset + 1,
                    at_ms=now_ms,
                )
            else:
                one.next_offset = record.offset + 1
        self._ranges.extend(found.values())
        if len(self._ranges) > MOST_RANGES:
            self._ranges = _with_oldest_as_one(self._ranges)

    def take(self) -> list[Heard]:
        """Return the ranges applied since the last call."""
        ranges = self._ranges
        if ranges:
            self._ranges = []
        return ranges


def _with_oldest_as_one(ranges: list[Heard]) -> list[Heard]:
    """Merge the older half by partition; keep the newer half."""
    older, newer = ranges[: len(ranges) // 2], ranges[len(ranges) // 2 :]
    summed: dict[int, Heard] = {}
    for one in older:
        known = summed.setdefault(one.partition, one)
        known.next_offset, known.at_ms = one.next_offset, one.at_ms
    return [*summed.values(), *newer]
