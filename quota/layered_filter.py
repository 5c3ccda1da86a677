"""The producer ids that one user has used within `remember_ms`: a layered, time-decaying Bloom filter.

Layers oldest first, the last is the target. Slices of time are aligned (slice number = now // slice
length), so that a connection may serve an id from its own cache until the slice ends: a layer therefore
lives until `remember_ms` after the END of its slice. No false negative within `remember_ms` of the last
use; a false positive admits an id unpaid.

Only this file knows layers. It knows no quota: it is told the floor of a layer's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import mmh3

from quota.bloom import BloomLayer, HashPair
from quota.settings import ProducerIdSettings

SMALLEST_LAYER = 100
"""Below this a layer has too few index sets: with n = 1 the false positives are 15 times the target."""

MOST_LAYERS = 16
"""Bounds the cost of a check, and the false positives: each layer may have 1/20 of the target."""

_SHARES_OF_TARGET = 20

_DEGENERATE_SEED = 8
"""MurmurHash3 with a seed equal to the key's length (8 bytes) gives two related halves."""


class Sighting(Enum):
    """What the filter knows of an id."""

    UNSEEN = auto()
    REMEMBERED = auto()  # in an earlier slice only: to be put into the current one, free of charge
    CURRENT = auto()  # in a layer of the current slice: nothing to do


class FilterBudget:
    """Design counts held by the layers of all users together, and their bound; `overfull` counts what went
    beyond.

    An id in use throughout is in one layer of every live slice, hence `layers + 1` entries for each live id.
    """

    __slots__ = ("held", "limit", "overfull")

    def __init__(self, settings: ProducerIdSettings) -> None:
        self.held = 0
        self.overfull = 0
        self.reshape(settings)

    def reshape(self, settings: ProducerIdSettings) -> None:
        self.limit = settings.max_live_ids * (settings.layers + 1)


@dataclass(slots=True)
class _Layer:
    slice_end_ms: int
    bits: BloomLayer
    newest_of: int = 0  # ids whose newest layer this is: forgotten when it is dropped


class LayeredFilter:
    """The ids of one user. `seed` is 32 bits wide, random for each user, so that nobody can aim at
    collisions.
    """

    __slots__ = ("_budget", "_layers", "_next_expiry_ms", "_seed", "_settings")

    def __init__(self, settings: ProducerIdSettings, budget: FilterBudget, seed: int) -> None:
        if seed == _DEGENERATE_SEED:
            raise ValueError("a seed equal to the key length is degenerate")
        self._settings = settings
        self._budget = budget
        self._seed = seed
        self._layers: list[_Layer] = []
        self._next_expiry_ms = 0

    def hashed(self, producer_id: int) -> HashPair:
        """The id's hash, computed once for all layers."""
        high, low = mmh3.mmh3_x64_128_utupledigest(producer_id.to_bytes(8, "little"), self._seed)
        return high, low

    def find(self, pair: HashPair, now_ms: int) -> Sighting:
        """Whether the id is remembered. Expiry is applied here too: a quiet user's old layers must not
        answer.
        """
        layer = self._newest_holding(pair, now_ms)
        if layer is None:
            return Sighting.UNSEEN
        if layer.slice_end_ms == self._slice_end_ms(now_ms):
            return Sighting.CURRENT
        return Sighting.REMEMBERED

    def insert(self, pair: HashPair, now_ms: int, *, floor: int) -> None:
        """Puts the id into the current slice, if it is not there. `floor` is the least design count of a
        new layer.
        """
        slice_end_ms = self._slice_end_ms(now_ms)
        holder = self._newest_holding(pair, now_ms)
        if holder is not None:
            if holder.slice_end_ms == slice_end_ms:
                return
            holder.newest_of -= 1
        target = self._target(slice_end_ms, max(floor, SMALLEST_LAYER))
        if target.bits.is_full:
            self._budget.overfull += 1
        target.bits.add(pair)
        target.newest_of += 1

    def expire(self, now_ms: int) -> None:
        """Drops the layers whose slice ended `remember_ms` ago or earlier."""
        if now_ms < self._next_expiry_ms or not self._layers:
            return
        remember_ms = self._settings.remember_ms
        kept = [layer for layer in self._layers if layer.slice_end_ms + remember_ms > now_ms]
        self._budget.held -= sum(layer.bits.design_count for layer in self._layers)
        self._budget.held += sum(layer.bits.design_count for layer in kept)
        self._layers = kept
        self._note_next_expiry()

    def reshape(self, settings: ProducerIdSettings) -> None:
        """New settings; layers that exist keep their size, and are kept as long as the new settings say."""
        self._settings = settings
        self._note_next_expiry()

    def live_ids(self, now_ms: int) -> int:
        """Distinct ids remembered."""
        self.expire(now_ms)
        return sum(layer.newest_of for layer in self._layers)

    def is_empty(self, now_ms: int) -> bool:
        self.expire(now_ms)
        return not self._layers

    @property
    def size_bytes(self) -> int:
        return sum(layer.bits.size_bytes for layer in self._layers)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self._layers)

    def _slice_end_ms(self, now_ms: int) -> int:
        slice_ms = self._settings.slice_ms
        return (now_ms // slice_ms + 1) * slice_ms

    def _note_next_expiry(self) -> None:
        ends = [layer.slice_end_ms for layer in self._layers]
        self._next_expiry_ms = min(ends) + self._settings.remember_ms if ends else 0

    def _newest_holding(self, pair: HashPair, now_ms: int) -> _Layer | None:
        self.expire(now_ms)
        for layer in reversed(self._layers):
            if pair in layer.bits:
                return layer
        return None

    def _target(self, slice_end_ms: int, floor: int) -> _Layer:
        """The layer to insert into: the last one, or a new one when the slice has passed or the last one
        is full.
        """
        last = self._layers[-1] if self._layers else None
        in_slice = last is not None and last.slice_end_ms == slice_end_ms
        if last is not None and in_slice and not last.bits.is_full:
            return last
        design_count = self._affordable(self._design_count(last if in_slice else None, floor))
        if last is None or (design_count and len(self._layers) < MOST_LAYERS):
            return self._start_layer(slice_end_ms, design_count or SMALLEST_LAYER)
        # No room: the last layer goes on. It is closed later now, so what is in it is remembered longer.
        last.slice_end_ms = slice_end_ms
        self._note_next_expiry()
        return last

    def _start_layer(self, slice_end_ms: int, design_count: int) -> _Layer:
        share = self._settings.false_positive_rate / _SHARES_OF_TARGET
        layer = _Layer(slice_end_ms, BloomLayer(design_count, share))
        self._layers.append(layer)
        self._budget.held += design_count
        self._note_next_expiry()
        return layer

    def _design_count(self, filled: _Layer | None, floor: int) -> int:
        """Follows what lives, not only the quota: 5,000 producers under a quota of 100 would need
        hundreds of layers.
        """
        if filled is not None:
            return max(floor, 2 * filled.bits.design_count)
        if not self._layers:
            return floor
        previous_end_ms = self._layers[-1].slice_end_ms
        previous = sum(layer.bits.count for layer in self._layers if layer.slice_end_ms == previous_end_ms)
        # A sixteenth more, or one id above last slice's number would double the layer.
        return max(floor, previous + previous // 16)

    def _affordable(self, design_count: int) -> int:
        """The design count that the budget still allows, 0 when not even the smallest layer fits."""
        room = self._budget.limit - self._budget.held
        return min(design_count, room) if room >= SMALLEST_LAYER else 0


def usable_seed(seed: int) -> int:
    """A 32-bit seed out of any random integer, never the degenerate one."""
    narrowed = seed & 0xFFFFFFFF
    return narrowed if narrowed != _DEGENERATE_SEED else narrowed + 1
