"""One Bloom filter layer: its shape, its indices, its bits.

Sizes and hashing follow org.apache.commons.collections4.bloomfilter (Shape, EnhancedDoubleHasher). What is
put in is a pair of 64-bit hash values; who hashes, and with which seed, is not known here. Bits of a
producer id itself must never be used: ids are sequential in blocks of 1,000 (KIP-730), which ruins naive
hashing.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final, Self

_MASKS: Final = tuple(1 << bit for bit in range(8))

HashPair = tuple[int, int]
"""Two unsigned 64-bit values."""


def shape(n: int, p: float) -> tuple[int, int]:
    """Return (bits m, hash functions k) for `n` entries at a false-positive rate of `p`. Raises ValueError."""
    if n < 1 or not 0 < p < 1:
        raise ValueError(f"no filter has {n} entries at a false-positive rate of {p}")
    bits = math.ceil(n * math.log(p) / -(math.log(2) ** 2))
    return bits, max(1, round(math.log(2) * bits / n))


@cache
def _turns(hashes: int) -> tuple[int, ...]:
    """1 to k, made once for all layers: making a range for each check is a tenth of its time."""
    return tuple(range(1, hashes + 1))


class BloomLayer:
    """Bits of a filter made for `design_count` distinct entries, and how many are in it.

    `bits` and `hashes` are its shape: m and k.
    """

    __slots__ = ("_bits", "_m", "_turns", "count", "design_count")

    def __init__(self, design_count: int, bits: int, hashes: int) -> None:
        self._m = bits
        self._turns = _turns(hashes)
        self._bits = bytearray((bits + 7) // 8)
        self.design_count = design_count
        self.count = 0

    @classmethod
    def restored(
        cls, design_count: int, bits: int, hashes: int, count: int, data: bytes | memoryview
    ) -> Self:
        """Make a layer as it was exported. Raises ValueError when the parts do not fit."""
        if design_count < 1 or bits < 1 or hashes < 1 or count < 0 or len(data) != (bits + 7) // 8:
            raise ValueError(f"no layer has {bits} bits, {hashes} hashes, {count} ids in {len(data)} bytes")
        layer = cls(design_count, bits, hashes)
        layer._bits[:] = data
        layer.count = count
        return layer

    @property
    def bits(self) -> int:
        """m, the number of bits."""
        return self._m

    @property
    def hashes(self) -> int:
        """k, the number of bits of one entry."""
        return len(self._turns)

    @property
    def data(self) -> memoryview:
        """The bits as they are at the moment of reading; bit i is bit i % 8 of byte i // 8."""
        return memoryview(self._bits).toreadonly()

    @property
    def size_bytes(self) -> int:
        return len(self._bits)

    @property
    def is_full(self) -> bool:
        """True when the design count is reached; one more entry would break the false-positive rate."""
        return self.count >= self.design_count

    def __contains__(self, pair: HashPair) -> bool:
        # Enhanced double hashing, written out here and in `add`: these loops run for every layer of every check and
        # for every id of a history, and a generator of the positions doubles their time.
        bits, m = self._bits, self._m
        index, step = pair[0] % m, pair[1] % m
        for i in self._turns:
            if not bits[index >> 3] & _MASKS[index & 7]:
                return False
            index = (index - step) % m
            step -= i
        return True

    def add(self, pair: HashPair) -> None:
        """Add an entry that the caller knows is not in this layer (it is counted as distinct)."""
        bits, m = self._bits, self._m
        index, step = pair[0] % m, pair[1] % m
        for i in self._turns:
            bits[index >> 3] |= _MASKS[index & 7]
            index = (index - step) % m
            step -= i
        self.count += 1
