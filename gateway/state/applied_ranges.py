"""When other gateways' decisions were taken into the state, kept until the next decision event tells it.

A replay needs it: a charge that is heard of a millisecond later finds a bucket that is fuller by a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pidgate.events import Heard
from pidgate.gateway.topics.records import EventRecord

MOST_PIECES: Final = 64
"""Of a gateway that hears much and decides nothing; what is older is told as one piece of its partition."""


class AppliedRanges:
    """Pieces of the topic in the order in which they were applied."""

    def __init__(self) -> None:
        self._pieces: list[Heard] = []

    def applied(self, records: Iterable[EventRecord], now_ms: int) -> None:
        """These records, of which one at least was another gateway's decision, are in the state since now."""
        found: dict[int, Heard] = {}
        for record in records:
            piece = found.get(record.partition)
            if piece is None:
                found[record.partition] = Heard(
                    partition=record.partition,
                    first_offset=record.offset,
                    next_offset=record.offset + 1,
                    at_ms=now_ms,
                )
            else:
                piece.next_offset = record.offset + 1
        self._pieces.extend(found.values())
        if len(self._pieces) > MOST_PIECES:
            self._pieces = _with_oldest_as_one(self._pieces)

    def take(self) -> list[Heard]:
        """What was applied since this was asked last."""
        pieces = self._pieces
        if pieces:
            self._pieces = []
        return pieces


def _with_oldest_as_one(pieces: list[Heard]) -> list[Heard]:
    """The older half by partition, then the newer one as it is."""
    older, newer = pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]
    summed: dict[int, Heard] = {}
    for piece in older:
        known = summed.setdefault(piece.partition, piece)
        known.next_offset, known.at_ms = piece.next_offset, piece.at_ms
    return [*summed.values(), *newer]
