"""Duplicate and missing events, by the gapless `seq` of each incarnation. Pure.

A topic is written at least once, and a gateway with a full buffer drops events: both show in `seq`. Events of
one incarnation are spread over all partitions, and partitions are read at different speeds. Order therefore
proves nothing: each number is recorded in a bitmap.

A gap counts only between the first and the last number that were certainly inside the part read (`judged`):
numbers at both edges are missing because they lie outside. An incarnation whose last events were lost shows
no gap, as no event follows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_CHUNK_BITS: Final = 1 << 16
_WHOLE: Final = (1 << _CHUNK_BITS) - 1
MOST_INCARNATIONS: Final = 2_000
"""Events of further incarnations (a gateway in a crash loop) are accepted without a check."""
MOST_CHUNKS: Final = 200
"""Unfinished bitmaps of 8 KiB for one incarnation. Numbers are adjacent, so that is 13 million events."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Missing events of one incarnation."""

    gateway_id: str
    incarnation: str
    events: int


class Sequences:
    """Bitmap of the received numbers, by incarnation."""

    __slots__ = ("_incarnations",)

    def __init__(self) -> None:
        self._incarnations: dict[str, _Ticked] = {}

    def is_new(self, gateway_id: str, incarnation: str, seq: int, *, judged: bool) -> bool:
        """Record one number; return False if it was received before."""
        ticked = self._incarnations.get(incarnation)
        if ticked is None:
            if len(self._incarnations) >= MOST_INCARNATIONS:
                return True
            ticked = self._incarnations[incarnation] = _Ticked(gateway_id)
        if seq < 0:
            return True
        return ticked.tick(seq, judged)

    def lost(self) -> list[Lost]:
        """Return missing events by incarnation, most first."""
        found = [
            Lost(ticked.gateway_id, incarnation, missing)
            for incarnation, ticked in self._incarnations.items()
            if (missing := ticked.missing())
        ]
        return sorted(found, key=lambda lost: (-lost.events, lost.incarnation))


@dataclass(slots=True, eq=False)
class _Ticked:
    gateway_id: str
    first: int = -1
    last: int = -1
    _chunks: dict[int, bytearray | None] = field(default_factory=dict)
    """None: complete. Only chunks with gaps cost memory."""
    _overflowed: bool = False

    def tick(self, seq: int, judged: bool) -> bool:
        number, bit = divmod(seq, _CHUNK_BITS)
        if judged:
            self.last = max(self.last, seq)
            self.first = seq if self.first < 0 else min(self.first, seq)
        if number not in self._chunks:
            if len(self._chunks) >= MOST_CHUNKS:
                self._overflowed = True
                return True
            self._chunks[number] = bytearray(_CHUNK_BITS // 8)
        chunk = self._chunks[number]
        if chunk is None:
            return False
        mask = 1 << (bit & 7)
        if chunk[bit >> 3] & mask:
            return False
        chunk[bit >> 3] |= mask
        if chunk[bit >> 3] == 0xFF and int.from_bytes(chunk, "little") == _WHOLE:
            self._chunks[number] = None
        return True

    def missing(self) -> int:
        if self.first < 0 or self._overflowed:
            return 0
        return self.last - self.first + 1 - sum(self._ticked_in(number) for number in self._chunks)

    def _ticked_in(self, number: int) -> int:
        """Count the received numbers of this chunk, between first and last."""
        lowest = max(self.first - number * _CHUNK_BITS, 0)
        highest = min(self.last - number * _CHUNK_BITS, _CHUNK_BITS - 1)
        if lowest > highest:
            return 0
        chunk = self._chunks[number]
        bits = _WHOLE if chunk is None else int.from_bytes(chunk, "little")
        return ((bits >> lowest) & ((1 << (highest - lowest + 1)) - 1)).bit_count()
