"""Producer ids used by one user within `remember_ms`: a layered, time-decaying Bloom filter. PURE.

Layers are ordered from oldest to newest, and ids are inserted into the last one. Slices of time are aligned (slice
number = now // slice length), so that a connection may serve an id from its cache until the slice ends: a layer lives
until `remember_ms` after the end of its slice. Other processes, and earlier ones, cut their slices at other times and
publish an id once in each, so their ids live a slice longer. There are no false negatives within `remember_ms` of the
last use. A false positive admits an id unpaid.

Memory follows use, not the quota: a layer begins small and doubles when it is full. Each filter has a share of the
budget that no other filter can take (FilterBudget).

Sizes and hashing of a layer follow org.apache.commons.collections4.bloomfilter (Shape, EnhancedDoubleHasher). A layer
stores pairs of 64-bit hashes, never bits of a producer id itself: ids are sequential in blocks of 1,000 (KIP-730), and
naive hashing would cluster them.

Must not know quotas: the floor of a layer's size is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Final, Self

import mmh3

from pidgate.quota.settings import ProducerIdSettings

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


@dataclass(frozen=True, slots=True)
class LayerState:
    """One layer of a user's filter.

    design_count  distinct ids it was made for
    bits, hashes  its shape: m and k
    count         distinct ids put into it
    newest_of     of them those that are in no newer layer
    slice_age_ms  since its slice ended
    used_age_ms   since the latest moment at which an id in it may have been used
    data          ceil(bits / 8) bytes; bit i is bit i % 8 of byte i // 8. A view of the filter's own bits: an id
                  that is put in later shows in it, in part or whole
    transactional whether its ids were used in transactions
    """

    design_count: int
    bits: int
    hashes: int
    count: int
    newest_of: int
    slice_age_ms: int
    used_age_ms: int
    data: bytes | memoryview
    transactional: bool = False


SMALLEST_LAYER: Final = 100
"""Below this a layer has too few index sets: with n = 1 the false positives are 15 times the target."""

LARGEST_FIRST_LAYER: Final = 10_000
"""A quota promises ids, it does not bring them: a layer that nothing but the quota asks for is no larger."""

TIMES_FREE: Final = 4
"""A filter may hold so many times what is still free of the budget."""

GUARANTEED: Final = 4_000
"""Entries of each filter, about 10 kB: what a user with the rate of 100 per hour fills, used to the full."""

MOST_LAYERS: Final = 16
"""Bound on the cost of a check, and the false positives: each layer may have 1/20 of the target."""

_SHARES_OF_TARGET: Final = 20

_DEGENERATE_SEED: Final = 8
"""MurmurHash3 with a seed equal to the key's length (8 bytes) gives two related halves."""


class Sighting(Enum):
    """Result of a look-up."""

    UNSEEN = auto()
    REMEMBERED = auto()  # in an earlier slice only: to be put into the current one, free of charge
    CURRENT = auto()  # in a layer of the current slice: nothing to do


class FilterBudget:
    """Design counts held by the filters of all users together, and each filter's share; `overfull` counts what went
    beyond.

    An id in use throughout is in one layer of every live slice, hence `layers + 1` entries for each live id.

    A filter may hold TIMES_FREE times what is still free, so it never takes all: alone it gets four fifths, and each
    further one that wants everything leaves the others room. GUARANTEED entries it has in any case, beyond the limit
    if need be. So no user's ids, and no user's rate, fill the filter of another.
    """

    __slots__ = ("held", "limit", "overfull")

    def __init__(self, settings: ProducerIdSettings) -> None:
        self.held = 0
        self.overfull = 0
        self.reshape(settings)

    def reshape(self, settings: ProducerIdSettings) -> None:
        self.limit = settings.max_live_ids * (settings.layers + 1)

    def room(self, own: int) -> int:
        """Return what a filter that holds `own` may add; 0 or less: nothing."""
        free = self.limit - self.held
        # own + room <= TIMES_FREE x what is free afterwards
        share = (TIMES_FREE * free - own) // (TIMES_FREE + 1)
        return max(share, GUARANTEED - own)


class _Layer(BloomLayer):
    """A layer and its time.

    slice_end_ms   it takes what is used until then
    used_until_ms  no id in it was used later, by whatever process: it is remembered from here on
    newest_of      ids whose newest layer this is: forgotten when it is dropped
    """

    __slots__ = ("newest_of", "slice_end_ms", "used_until_ms")

    slice_end_ms: int
    used_until_ms: int
    newest_of: int


class LayeredFilter:
    """The ids of one user. `seed` is 32 bits wide, random for each user, so that nobody can aim at
    collisions.
    """

    __slots__ = (
        "_budget",
        "_held",
        "_layers",
        "_next_expiry_ms",
        "_seed",
        "_settings",
        "_silence_ms",
        "_slice_ms",
        "is_changed",
    )

    def __init__(self, settings: ProducerIdSettings, budget: FilterBudget, seed: int) -> None:
        if seed == _DEGENERATE_SEED:
            raise ValueError("a seed equal to the key length is degenerate")
        self._budget = budget
        self._seed = seed
        self._layers: list[_Layer] = []
        self._held = 0
        self._next_expiry_ms = 0
        self.is_changed = True
        """An id was put in, or its time prolonged, since a snapshot last held the filter."""
        self._apply_settings(settings)

    def _apply_settings(self, settings: ProducerIdSettings) -> None:
        self._settings = settings
        self._slice_ms = settings.slice_ms
        self._silence_ms = silence_ms(settings)

    def hashed(self, producer_id: int) -> HashPair:
        """Return the id's hash, computed once for all layers."""
        high, low = mmh3.mmh3_x64_128_utupledigest(producer_id.to_bytes(8, "little"), self._seed)
        return high, low

    def find(self, pair: HashPair, now_ms: int) -> Sighting:
        """Look the id up. Expires layers first: a quiet user's old layers must not answer."""
        layer = self._newest_holding(pair, now_ms)
        if layer is None:
            return Sighting.UNSEEN
        if layer.slice_end_ms >= self._slice_end_ms(now_ms):
            return Sighting.CURRENT
        return Sighting.REMEMBERED

    def insert(self, pair: HashPair, now_ms: int, *, floor: int, others_hear: bool = False) -> None:
        """Put the id into the current slice, unless it is there. `floor`: least design count of a new layer.

        `others_hear`: other gateways follow the event, and may use the id for a slice of theirs without another.
        """
        slice_end_ms = self._slice_end_ms(now_ms)
        used_until_ms = now_ms + self._silence_ms if others_hear else slice_end_ms
        self._put(pair, slice_end_ms, used_until_ms, now_ms, floor)

    def insert_elsewhere(self, pair: HashPair, used_ms: int, now_ms: int, *, floor: int) -> bool:
        """Insert an id used by another or an earlier process at `used_ms` (not after `now_ms`); return whether it was
        unseen.

        That process may have used the id for a whole slice of its own without a further event.
        """
        slice_end_ms = self._slice_end_ms(used_ms)
        used_until_ms = used_ms + self._silence_ms  # not before the slice ends
        return self._put(pair, slice_end_ms, used_until_ms, now_ms, floor)

    def _put(self, pair: HashPair, slice_end_ms: int, used_until_ms: int, now_ms: int, floor: int) -> bool:
        known = layer = self._newest_holding(pair, now_ms)
        if layer is None or layer.slice_end_ms < slice_end_ms:
            if known is not None:
                known.newest_of -= 1
            layer = self._target(slice_end_ms, floor)
            layer.add(pair)
            layer.newest_of += 1
            self.is_changed = True
        if used_until_ms > layer.used_until_ms:
            layer.used_until_ms = used_until_ms
            self.is_changed = True
        return known is None

    def expire(self, now_ms: int) -> None:
        """Drop the layers of which nothing was used for `remember_ms`."""
        if now_ms < self._next_expiry_ms or not self._layers:
            return
        remember_ms = self._settings.remember_ms
        kept = [layer for layer in self._layers if layer.used_until_ms + remember_ms > now_ms]
        self._replace(kept)

    def reshape(self, settings: ProducerIdSettings, now_ms: int) -> None:
        """Apply new settings; existing layers keep their size, and are kept as long as the new settings demand."""
        if settings.slice_ms != self._slice_ms:
            # Slices of another length: none of these layers is the current one, or a long old slice would go
            # on through many short new ones.
            closed_ms = now_ms // settings.slice_ms * settings.slice_ms
            for layer in self._layers:
                layer.slice_end_ms = min(layer.slice_end_ms, closed_ms)
        self._apply_settings(settings)
        self._note_next_expiry()

    def export_layers(self, now_ms: int, *, transactional: bool = False) -> tuple[LayerState, ...]:
        """Return the layers for `restore_layers`, oldest first, marked with what their ids were used for."""
        self.expire(now_ms)
        return tuple(
            LayerState(
                layer.design_count,
                layer.bits,
                layer.hashes,
                layer.count,
                layer.newest_of,
                now_ms - layer.slice_end_ms,
                now_ms - layer.used_until_ms,
                layer.data,
                transactional,
            )
            for layer in self._layers
        )

    def restore_layers(self, layers: Iterable[LayerState], now_ms: int) -> None:
        """Replace the layers by those exported at `now_ms`; they keep their shape and their own slices.

        Raises ValueError when one of them is impossible.
        """
        restored = [self._restored(state, now_ms) for state in layers]
        self._replace(sorted(restored, key=lambda layer: layer.slice_end_ms))

    def _restored(self, state: LayerState, now_ms: int) -> _Layer:
        slice_ms = self._slice_ms
        slice_end_ms = now_ms - state.slice_age_ms
        if slice_end_ms > now_ms + slice_ms:
            slice_end_ms = now_ms // slice_ms * slice_ms  # its slices were longer, see `reshape`
        # A clock read twice is off by a little: a slice that ends just before one of ours is that one, or each
        # restart would start a layer. The ids in it are used for a little longer without a word; others have
        # allowed for that (`silence_ms`).
        aligned_ms = self._slice_end_ms(slice_end_ms - 1)
        if aligned_ms - slice_end_ms <= _tolerance_ms(self._settings):
            slice_end_ms = aligned_ms
        latest_ms = now_ms + self._silence_ms
        used_until_ms = max(slice_end_ms, min(now_ms - state.used_age_ms, latest_ms))
        layer = _Layer.restored(state.design_count, state.bits, state.hashes, state.count, state.data)
        layer.slice_end_ms, layer.used_until_ms = slice_end_ms, used_until_ms
        layer.newest_of = state.newest_of
        return layer

    def clear(self) -> None:
        """Forget everything."""
        self._replace([])

    def _replace(self, layers: list[_Layer]) -> None:
        """Have these layers from now on, and hold no more of the budget than they need."""
        self._layers = layers
        self._hold(sum(layer.design_count for layer in layers) - self._held)
        self._note_next_expiry()

    def _hold(self, more: int) -> None:
        self._held += more
        self._budget.held += more

    @property
    def seed(self) -> int:
        return self._seed

    def live_ids(self, now_ms: int) -> int:
        """Return the number of distinct ids remembered."""
        self.expire(now_ms)
        return sum(layer.newest_of for layer in self._layers)

    def is_empty(self, now_ms: int) -> bool:
        self.expire(now_ms)
        return not self._layers

    @property
    def size_bytes(self) -> int:
        return sum(layer.size_bytes for layer in self._layers)

    def _slice_end_ms(self, now_ms: int) -> int:
        slice_ms = self._slice_ms
        return (now_ms // slice_ms + 1) * slice_ms

    def _note_next_expiry(self) -> None:
        ends = [layer.used_until_ms for layer in self._layers]
        self._next_expiry_ms = min(ends) + self._settings.remember_ms if ends else 0

    def _newest_holding(self, pair: HashPair, now_ms: int) -> _Layer | None:
        if now_ms >= self._next_expiry_ms:
            self.expire(now_ms)
        for layer in reversed(self._layers):
            if pair in layer:
                return layer
        return None

    def _target(self, slice_end_ms: int, floor: int) -> _Layer:
        """Return the layer to insert into: the last one, or a new one when the slice has passed or it is full."""
        if not self._layers:
            return self._start_layer(slice_end_ms, self._affordable(self._design_count(None, floor)))
        last = self._layers[-1]
        # A restored slice may end after ours, and a history may hold older uses: the last layer it is,
        # in which everything is remembered long enough.
        in_slice = last.slice_end_ms >= slice_end_ms
        if in_slice and last.count < last.design_count:
            return last
        slice_end_ms = max(slice_end_ms, last.slice_end_ms)
        design_count = self._affordable(self._design_count(last if in_slice else None, floor))
        if design_count and len(self._layers) < MOST_LAYERS:
            return self._start_layer(slice_end_ms, design_count)
        # No room: the last layer goes on. It is closed later now, so what is in it is remembered longer.
        if last.is_full:
            self._budget.overfull += 1
        last.slice_end_ms = slice_end_ms
        last.used_until_ms = max(last.used_until_ms, slice_end_ms)
        self._note_next_expiry()
        return last

    def _start_layer(self, slice_end_ms: int, design_count: int) -> _Layer:
        """Start a layer for `design_count` ids; 0: for as few as possible."""
        design_count = design_count or SMALLEST_LAYER
        layer = _Layer(
            design_count, *shape(design_count, self._settings.false_positive_rate / _SHARES_OF_TARGET)
        )
        layer.slice_end_ms = layer.used_until_ms = slice_end_ms
        layer.newest_of = 0
        self._layers.append(layer)
        self._hold(design_count)
        self._note_next_expiry()
        return layer

    def _design_count(self, filled: _Layer | None, floor: int) -> int:
        """Return the count to design for, from what lives and not only from the quota.

        5,000 producers under a quota of 100 would need hundreds of layers, and a quota of a billion is no reason to
        hold memory for a billion.
        """
        floor = min(max(floor, SMALLEST_LAYER), LARGEST_FIRST_LAYER)
        if filled is not None:
            return max(floor, 2 * filled.design_count)
        if not self._layers:
            return floor
        # Over a whole slice's time: after a restart a slice may have been cut short.
        since_ms = self._layers[-1].slice_end_ms - self._slice_ms
        previous = sum(layer.newest_of for layer in self._layers if layer.slice_end_ms > since_ms)
        # A little more, or one id above last slice's number would double the layer.
        return max(floor, previous + previous // 64)

    def _affordable(self, design_count: int) -> int:
        """Return the design count that is within the filter's share, 0 when not even the smallest layer fits."""
        room = self._budget.room(self._held)
        return min(design_count, room) if room >= SMALLEST_LAYER else 0


def silence_ms(settings: ProducerIdSettings) -> int:
    """Return how long (ms) another gateway may use an id without publishing it again."""
    return settings.slice_ms + _tolerance_ms(settings)


def kept_ms(settings: ProducerIdSettings) -> int:
    """Return how much history (ms) a restore must read: `remember_ms` + `silence_ms`."""
    return settings.remember_ms + silence_ms(settings)


def _tolerance_ms(settings: ProducerIdSettings) -> int:
    return settings.slice_ms // 64


def usable_seed(seed: int) -> int:
    """Make a 32-bit seed of any random integer, never the degenerate one."""
    narrowed = seed & 0xFFFFFFFF
    return narrowed if narrowed != _DEGENERATE_SEED else narrowed + 1
