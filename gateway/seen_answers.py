"""Answers of brokers that were read before: clients of one application ask for the same again and again. PURE.

They are distinguished by Python's own keyed hash. An answer holds names that a client asked for, so with a hash that
anyone can compute (CRC-32), one client could make its answer pass for that of another, and that would not be read.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST_ANSWERS: Final = 256

_CORRELATION_ID_BYTES: Final = 4


class SeenAnswers:
    """The hashes of the latest MOST_ANSWERS answers."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[int, None] = OrderedDict()

    def is_new(self, answer: memoryview) -> bool:
        """Return whether such an answer, whatever its correlation id, was not asked about before."""
        hashed = self._hash_of(answer[_CORRELATION_ID_BYTES:])
        if hashed in self._hashes:
            return False
        self._hashes[hashed] = None
        if len(self._hashes) > MOST_ANSWERS:
            self._hashes.popitem(last=False)
        return True

    @staticmethod
    def _hash_of(answer: memoryview) -> int:
        return hash(bytes(answer))
