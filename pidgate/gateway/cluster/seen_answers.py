"""Recently processed responses, since clients of one application request the same again and again. PURE.

Compared by Python's keyed hash. Responses contain names chosen by clients: with an unkeyed hash (CRC-32) a
client could forge a collision that keeps another response from being processed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator
from typing import Final

MOST_ANSWERS: Final = 256

BYTES_PER_STEP: Final = 8 * 1024
"""5 us, within the limit of a Walk step (protocol/work.py)."""

Answer = bytes | memoryview
"""A response without its size prefix, in memory that is no longer modified and may be kept."""

_CORRELATION_ID_BYTES: Final = 4


def hash_of(answer: Answer) -> Generator[None, None, int]:
    """Hash a response except its correlation id, in steps; 20 MB take 15 ms."""
    hashed = 0
    for at in range(_CORRELATION_ID_BYTES, len(answer), BYTES_PER_STEP):
        hashed = hash(hashed.to_bytes(8, "big", signed=True) + answer[at : at + BYTES_PER_STEP])
        yield
    return hashed


class SeenAnswers:
    """Hashes of the last MOST_ANSWERS responses."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[int, None] = OrderedDict()

    def is_new(self, hashed: int) -> bool:
        """Return whether this hash was not seen before."""
        if hashed in self._hashes:
            return False
        self._hashes[hashed] = None
        if len(self._hashes) > MOST_ANSWERS:
            self._hashes.popitem(last=False)
        return True
