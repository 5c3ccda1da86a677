"""Tables of bounded size that report how much they left out. Pure; deterministic.

A full table of names keeps counting the names it leaves out. A full sample keeps every second key by a hash
of the key itself: the sample is fair, and the same at every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Value = TypeVar("Value")

_MIX: Final = 0x9E3779B97F4A7C15
_64_BITS: Final = 0xFFFFFFFFFFFFFFFF


def mixed(key: int) -> int:
    """Return a hash of `key` (splitmix64): ids are sequential, a sample must not be."""
    key = (key + _MIX) & _64_BITS
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return key ^ (key >> 31)


class Names:
    """Counts of at most `limit` names. Occurrences of further names are counted in `unnamed`."""

    __slots__ = ("_counts", "_limit", "unnamed")

    def __init__(self, limit: int) -> None:
        self._counts: dict[str, int] = {}
        self._limit = limit
        self.unnamed = 0

    def add(self, name: str) -> None:
        counts = self._counts
        if name in counts:
            counts[name] += 1
        elif len(counts) < self._limit:
            counts[name] = 1
        else:
            self.unnamed += 1

    def __len__(self) -> int:
        """Return the number of names held; with `unnamed` above 0 there are more."""
        return len(self._counts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def top(self, most: int) -> list[tuple[str, int]]:
        """Return the most frequent names with their counts; equal ones by name."""
        return sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[:most]


class Sample(Generic[Value]):
    """Values by integer key, at most `limit`. Above it only 1 in 2, 1 in 4 ... of all keys is kept."""

    __slots__ = ("_halvings", "_limit", "_mask", "_values")

    def __init__(self, limit: int) -> None:
        self._values: dict[int, Value] = {}
        self._limit = limit
        self._halvings = 0
        self._mask = 0

    def get(self, key: int) -> Value | None:
        return self._values.get(key)

    def takes(self, key: int) -> bool:
        """Return whether the key belongs to the kept share."""
        return not self._mask or not mixed(key) & self._mask

    def put(self, key: int, value: Value) -> None:
        """Keep it, if `takes(key)`; may thin the sample."""
        if not self.takes(key):
            return
        self._values[key] = value
        while len(self._values) > self._limit:
            self._halve()

    def items(self) -> Iterable[tuple[int, Value]]:
        return self._values.items()

    def limit_to(self, limit: int) -> None:
        self._limit = limit
        while len(self._values) > limit:
            self._halve()

    def _halve(self) -> None:
        self._halvings += 1
        self._mask = (1 << self._halvings) - 1
        self._values = {key: value for key, value in self._values.items() if not mixed(key) & self._mask}

    @property
    def one_in(self) -> int:
        """Return n, where one in n keys is kept; 1: all of them."""
        return 1 << self._halvings

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._values.values())


@dataclass(frozen=True, slots=True)
class Spread:
    """Number of values, their sum, and the bounds of one half, nine tenths and all of them."""

    count: int
    median: int
    p90: int
    greatest: int
    total: int

    @property
    def mean(self) -> float:
        return self.total / self.count


def spread(values: Iterable[int]) -> Spread | None:
    """Return the spread of values; None for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Spread(len(ordered), quantile(ordered, 0.5), quantile(ordered, 0.9), ordered[-1], sum(ordered))


def quantile(ordered: Sequence[int], share: float) -> int:
    """Return the least value not exceeded by this share of `ordered` (ascending, not empty)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
