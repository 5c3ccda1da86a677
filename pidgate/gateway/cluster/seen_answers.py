"""Answers of brokers that were read before: clients of one application ask for the same again and again. PURE.

They are distinguished by Python's own keyed hash. An answer holds names that a client asked for, so with a hash that
anyone can compute (CRC-32), one client could make its answer pass for that of another, and that would not be read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator
from typing import Final

MOST_ANSWERS: Final = 256

BYTES_PER_STEP: Final = 8 * 1024
"""5 us, as a step of any Walk may take (protocol/work.py)."""

Answer = bytes | memoryview
"""An answer without its size prefix, in memory that nobody writes to any more: it may be kept."""

_CORRELATION_ID_BYTES: Final = 4


def hash_of(answer: Answer) -> Generator[None, None, int]:
    """Hash an answer, whatever its correlation id, in steps: one of 20 MB takes 15 ms."""
    hashed = 0
    for at in range(_CORRELATION_ID_BYTES, len(answer), BYTES_PER_STEP):
        hashed = hash(hashed.to_bytes(8, "big", signed=True) + answer[at : at + BYTES_PER_STEP])
        yield
    return hashed


class SeenAnswers:
    """The hashes of the latest MOST_ANSWERS answers."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[int, None] = OrderedDict()

    def is_new(self, hashed: int) -> bool:
        """Return whether an answer of this hash was not asked about before."""
        if hashed in self._hashes:
            return False
        self._hashes[hashed] = None
        if len(self._hashes) > MOST_ANSWERS:
            self._hashes.popitem(last=False)
        return True
