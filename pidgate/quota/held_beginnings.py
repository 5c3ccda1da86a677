"""Beginnings of partitions that were not forwarded at once, noted where all workers of a gateway see them. PURE.

A batch with sequence 0 begins a partition: the broker has no state of its producer yet, and takes whatever comes first.
While it is held (for the state owner, behind a mute) or refused, its partition's leader may move, and Java's producer
then sends what comes next to the new leader, without waiting for the answer to the first
(`RecordAccumulator.shouldStopDrainBatchesForPartition` stops retries only). That way leads through another connection,
often through another worker, where the id may have been known for hours. So whoever does not forward a beginning at
once notes it here first, and no cache of any connection answers for its partition while the note is fresh.

The notes are two tables of times in memory that all workers share: by id, which is all that the hot path looks at, and
by user, id and partition number. There are no keys in them: notes that meet in a slot only make each other last
longer, which costs a batch above 0 that meets both one refusal of 100 ms, and no note is ever lost. A user fills one
part of the second table and no other, whatever ids it makes up. Topics are left out, as one may be called by its name
through one connection and by its id through the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from pidgate.quota.entities import User
from pidgate.quota.sticky import WATCH_MS
from pidgate.quota.verdicts import ProducerBatch

SLOTS: Final = 1 << 18
"""Of each table. Ids come in sequence, so that so many in WATCH_MS do not meet in the first."""
WORDS: Final = 2 * SLOTS
"""Of 64 bits: 4 MiB."""
PARTS: Final = 64
"""Of the second table: a user's notes are in one of them."""
_PART_SLOTS: Final = SLOTS // PARTS
_SPREAD: Final = 40_503
"""Between the slots of neighbouring partitions: 2^16 by the golden ratio, odd, so that none meet in a part."""


class HeldBeginnings:
    """The notes. `words`: WORDS of 64 bits, at first 0; a word is written and read as a whole."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def note(self, user: User, batches: Sequence[ProducerBatch], now_ms: int) -> None:
        """Note those of a request's batches that begin a partition."""
        until_ms, part = now_ms + WATCH_MS, _part_of(user)
        for producer_id, _, base_sequence, _, partition in batches:
            if base_sequence == 0:
                self._words[_place(part, producer_id, partition)] = until_ms
                self._words[producer_id % SLOTS] = until_ms

    def has(self, user: User, producer_id: int, partition: int, now_ms: int) -> bool:
        """Return whether the id's beginning in a partition of this number may be noted."""
        return (
            now_ms < self._words[producer_id % SLOTS]
            and now_ms < self._words[_place(_part_of(user), producer_id, partition)]
        )

    def has_any(self, user: User, producer_id: int, partitions: list[list[int]], now_ms: int) -> bool:
        """Return whether one in these partitions, by topic, may be noted. Hot: it mostly reads one word."""
        if now_ms >= self._words[producer_id % SLOTS]:
            return False
        part = _part_of(user)
        for of_topic in partitions:
            for partition in of_topic:
                if now_ms < self._words[_place(part, producer_id, partition)]:
                    return True
        return False


def _part_of(user: User) -> int:
    """Return where the part of the user begins. Not hash(): that differs from process to process."""
    return SLOTS + crc32(user.encode()) % PARTS * _PART_SLOTS


def _place(part: int, producer_id: int, partition: int) -> int:
    return part + (producer_id + (partition + 1) * _SPREAD) % _PART_SLOTS
