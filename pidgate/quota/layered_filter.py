"""Producer ids used by one user within `remember_ms`: an exact set of the first ones, then Bloom layers. PURE.

Both are divided into slices of time, and ids are inserted into the newest slice. A slice lives until `remember_ms`
after its end. Slices are aligned (slice number = now // slice length), so a connection may serve an id from its cache
until the slice ends. Slices of other processes, and of earlier ones, begin at other times, and such a process publishes
an id once in each. So its ids live a slice longer. There are no false negatives within `remember_ms` of the last use.

The exact set holds up to EXACT_IDS ids. Only users with more ids have Bloom layers. A false positive of a layer admits
an id unpaid. A client that probes for one with made-up ids is refused most of the time. Above a pace of such refusals
only the exact set counts (`note_refused`).

Memory follows use, not the quota: a layer begins small and doubles when it is full. Each filter has a share of the
budget that no other filter can take (FilterBudget).

Sizes and hashing of a layer follow org.apache.commons.collections4.bloomfilter (Shape, EnhancedDoubleHasher). A layer
stores pairs of 64-bit hashes, never bits of a producer id itself: ids are sequential in blocks of 1,000 (KIP-730), and
naive hashing would cluster them. The hash covers a secret and the id. MurmurHash3's own seed has 32 bits, which can be
searched in 6 hours of a core.

Must not know quotas: the floor of a layer's size and the pace are arguments.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from functools import cache
from typing import Final, Self

import mmh3

from pidgate.quota.settings import ProducerIdSettings
from pidgate.quota.token_bucket import TokenBucket

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
    """Return 1 to k, once for all layers: creating a range takes a tenth of a check's time."""
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
    """One layer of a user's filter, or one slice of its exact set: `hashes` is 0 then, and `data` holds the ids.

    design_count  distinct ids it was made for
    bits, hashes  its shape: m and k
    count         distinct ids put into it
    newest_of     of them those that are in no newer layer
    slice_age_ms  time since its slice ended
    used_age_ms   time since the latest possible use of an id in it
    data          ceil(bits / 8) bytes; bit i is bit i % 8 of byte i // 8. A view of the filter's own bits: an id
                  that is put in later shows in it, in part or whole. Of an exact slice: its ids in order, 8 bytes each
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
"""Largest layer that is sized by the quota alone: a high rate does not mean many ids."""

TIMES_FREE: Final = 4
"""A filter may hold so many times what is still free of the budget."""

GUARANTEED: Final = 4_000
"""Entries of each filter, about 10 kB: a user with a rate of 100 per hour needs no more."""

SECRET_BYTES: Final = 16

MOST_LAYERS: Final = 16
"""Bound on the cost of a check, and the false positives: each layer may have 1/20 of the target."""

_SHARES_OF_TARGET: Final = 20

EXACT_IDS: Final = 4_096
"""40 new ids an hour for four days. Searching a sorted array of them takes the time of two Bloom layers."""

EXACT_COST: Final = 4
"""Entries of the budget for one exact id: 8 bytes, and room to grow; an entry of a layer takes 2.6."""

PACE_TIMES_RATE: Final = 10
"""Refused new ids, in windows of the rate, above which Bloom layers stop counting: 1 % of the rate passes for free."""

LEAST_PACE: Final = 100
"""Refused new ids per window: restarts of clients of a user with a small rate, or 0, are not probing."""


class Sighting(Enum):
    """Result of a look-up."""

    UNSEEN = auto()
    REMEMBERED = auto()  # in an earlier slice only: insert it into the current one, free of charge
    CURRENT = auto()  # in a layer of the current slice: nothing to do


class FilterBudget:
    """Design counts held by the filters of all users together, and each filter's share; `overfull` counts insertions
    beyond it.

    An id in use throughout is in one layer of every live slice, hence `layers + 1` entries for each live id.

    A filter may hold TIMES_FREE times what is still free: alone it gets four fifths, and each further one leaves room,
    too. It always has GUARANTEED entries, even beyond the limit. So no user's ids or rate can fill the filter of
    another.
    """

    __slots__ = ("held", "limit", "overfull")

    def __init__(self, settings: ProducerIdSettings) -> None:
        self.held = 0
        self.overfull = 0
        self.reshape(settings)

    def reshape(self, settings: ProducerIdSettings) -> None:
        self.limit = settings.max_live_ids * (settings.layers + 1)

    def room(self, own: int, exact: int) -> int:
        """Return how many entries the layers of a filter may add; 0 or less: none.

        The filter holds `own` entries, `exact` of them in its exact set, which the guarantee does not cover.
        """
        return max(self.share(own), GUARANTEED - (own - exact))

    def share(self, own: int) -> int:
        """Return how many entries a filter that holds `own` may add without its guarantee."""
        # own + share <= TIMES_FREE x what is free afterwards
        return (TIMES_FREE * (self.limit - self.held) - own) // (TIMES_FREE + 1)


class _ExactSlice:
    """Ids last used in one slice, in order, with the times of a layer."""

    __slots__ = ("ids", "slice_end_ms", "used_until_ms")

    def __init__(self, slice_end_ms: int, used_until_ms: int) -> None:
        self.ids = array("Q")
        self.slice_end_ms = slice_end_ms
        self.used_until_ms = used_until_ms

    @classmethod
    def restored(cls, slice_end_ms: int, used_until_ms: int, state: LayerState) -> Self:
        """Make a slice as it was exported. Raises ValueError when the parts do not fit."""
        restored = cls(slice_end_ms, used_until_ms)
        restored.ids.frombytes(state.data)
        ids = restored.ids.tolist()
        if ids != sorted(set(ids)) or state.bits != 64 * len(ids) or state.count != len(ids):
            raise ValueError(f"no exact slice has {state.bits} bits, {state.count} ids in {len(ids)} places")
        return restored

    def __contains__(self, entry: int) -> bool:
        place = bisect_left(self.ids, entry)
        return place < len(self.ids) and self.ids[place] == entry

    def add(self, entry: int) -> None:
        self.ids.insert(bisect_left(self.ids, entry), entry)

    def remove(self, entry: int) -> None:
        del self.ids[bisect_left(self.ids, entry)]


class _Layer(BloomLayer):
    """A layer and its time.

    slice_end_ms   end of its slice: later uses go to another layer
    used_until_ms  no process used an id in it later: `remember_ms` counts from here
    newest_of      ids whose newest layer this is: forgotten with it
    """

    __slots__ = ("newest_of", "slice_end_ms", "used_until_ms")

    slice_end_ms: int
    used_until_ms: int
    newest_of: int


class LayeredFilter:
    """The ids of one user. `secret`: 128 random bits, so that a client cannot compute collisions."""

    __slots__ = (
        "_budget",
        "_exact",
        "_exact_count",
        "_exact_ids",
        "_held",
        "_key",
        "_layers",
        "_next_expiry_ms",
        "_refused",
        "_settings",
        "_silence_ms",
        "_slice_ms",
        "is_changed",
    )

    def __init__(
        self, settings: ProducerIdSettings, budget: FilterBudget, secret: int, exact_ids: int = EXACT_IDS
    ) -> None:
        self._budget = budget
        self._key = secret.to_bytes(SECRET_BYTES, "little")
        self._exact_ids = exact_ids
        self._exact: list[_ExactSlice] = []
        self._exact_count = 0
        self._layers: list[_Layer] = []
        self._held = 0
        self._next_expiry_ms = 0
        self._refused: TokenBucket | None = None
        self.is_changed = True
        """An id was inserted, or its time prolonged, since the last snapshot of the filter."""
        self._apply_settings(settings)

    def _apply_settings(self, settings: ProducerIdSettings) -> None:
        self._settings = settings
        self._slice_ms = settings.slice_ms
        self._silence_ms = silence_ms(settings)

    def _hashed(self, entry: int) -> HashPair:
        high, low = mmh3.mmh3_x64_128_utupledigest(self._key + entry.to_bytes(8, "little"))
        return high, low

    def find(self, entry: int, now_ms: int) -> Sighting:
        """Look an id of 64 bits up. Expires layers first: a quiet user's old layers must not answer."""
        found: _ExactSlice | _Layer | None = self._exact_slice_of(entry, now_ms)
        if found is None and self._layers and not self._is_probed(now_ms):
            found = self._newest_holding(self._hashed(entry))
        if found is None:
            return Sighting.UNSEEN
        if found.slice_end_ms >= self._slice_end_ms(now_ms):
            return Sighting.CURRENT
        return Sighting.REMEMBERED

    def note_refused(self, rate_milli: int, now_ms: int) -> None:
        """Count an unseen id that is refused for the first time. `rate_milli`: of the bound that refuses it.

        Above PACE_TIMES_RATE such ids in a window, `find` trusts the exact set alone: a hit in the layers may be an id
        that the client made up, and is charged as a new one.
        """
        pace_milli = max(PACE_TIMES_RATE * rate_milli, LEAST_PACE * 1_000)
        window_ms, refused = self._settings.window_ms, self._refused
        if refused is None:
            refused = self._refused = TokenBucket(pace_milli, window_ms, Fraction(1), now_ms)
        refused.reshape(pace_milli, window_ms, Fraction(1), now_ms)
        refused.charge_floored(now_ms)

    def _is_probed(self, now_ms: int) -> bool:
        return self._refused is not None and self._refused.units(now_ms) < 0

    def insert(self, entry: int, now_ms: int, *, floor: int, others_hear: bool = False) -> None:
        """Put the id into the current slice, unless it is there. `floor`: least design count of a new layer.

        `others_hear`: other gateways follow the event, and may use the id for one of their slices without another.
        """
        slice_end_ms = self._slice_end_ms(now_ms)
        used_until_ms = now_ms + self._silence_ms if others_hear else slice_end_ms
        self._put(entry, slice_end_ms, used_until_ms, now_ms, floor)

    def insert_elsewhere(self, entry: int, used_ms: int, now_ms: int, *, floor: int) -> bool:
        """Insert an id used by another or an earlier process at `used_ms` (not after `now_ms`); return whether it was
        unseen.

        That process may have used the id for a whole slice of its own without a further event.
        """
        slice_end_ms = self._slice_end_ms(used_ms)
        used_until_ms = used_ms + self._silence_ms  # not before the slice ends
        return self._put(entry, slice_end_ms, used_until_ms, now_ms, floor)

    def _put(self, entry: int, slice_end_ms: int, used_until_ms: int, now_ms: int, floor: int) -> bool:
        holder: _ExactSlice | _Layer
        exact = self._exact_slice_of(entry, now_ms)
        pair = None if exact is not None else self._hashed(entry)
        layer = None if pair is None else self._newest_holding(pair)
        known = exact if exact is not None else layer
        if known is not None and known.slice_end_ms >= slice_end_ms:
            holder = known
        else:
            self.is_changed = True
            if layer is not None:
                layer.newest_of -= 1
            if exact is not None:
                exact.remove(entry)
            if pair is None or self._has_exact_room():
                if pair is not None:
                    self._exact_count += 1
                    self._hold(EXACT_COST)
                holder = target = self._exact_target(slice_end_ms)
                target.add(entry)
            else:
                holder = layer = self._target(slice_end_ms, floor)
                layer.add(pair)
                layer.newest_of += 1
        if used_until_ms > holder.used_until_ms:
            holder.used_until_ms = used_until_ms
            self.is_changed = True
        return known is None

    def expire(self, now_ms: int) -> None:
        """Drop the layers without a use for `remember_ms`."""
        if now_ms < self._next_expiry_ms or not (self._layers or self._exact):
            return
        oldest_ms = now_ms - self._settings.remember_ms
        self._replace(
            [exact for exact in self._exact if exact.used_until_ms > oldest_ms],
            [layer for layer in self._layers if layer.used_until_ms > oldest_ms],
        )

    def reshape(self, settings: ProducerIdSettings, now_ms: int) -> None:
        """Apply new settings; existing layers keep their size, and are kept as long as the new settings demand."""
        if settings.slice_ms != self._slice_ms:
            # Slices of another length: none of these layers may be the current one, or a long old slice would
            # continue through many short new ones.
            closed_ms = now_ms // settings.slice_ms * settings.slice_ms
            for part in self._parts():
                part.slice_end_ms = min(part.slice_end_ms, closed_ms)
        self._apply_settings(settings)
        self._note_next_expiry()

    def export_layers(self, now_ms: int, *, transactional: bool = False) -> tuple[LayerState, ...]:
        """Return the layers for `restore_layers`, oldest first, marked with the use of their ids."""
        self.expire(now_ms)
        exact = tuple(
            LayerState(
                len(part.ids),
                64 * len(part.ids),
                0,
                len(part.ids),
                len(part.ids),
                now_ms - part.slice_end_ms,
                now_ms - part.used_until_ms,
                part.ids.tobytes(),  # an array that is viewed cannot grow
                transactional,
            )
            for part in self._exact
            if part.ids
        )
        return exact + tuple(
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
        exact, bloom = [], []
        for state in layers:
            times = self._restored_times(state, now_ms)
            if state.hashes:
                bloom.append(self._restored(state, *times))
            else:
                exact.append(_ExactSlice.restored(*times, state))
        exact.sort(key=lambda part: part.slice_end_ms)
        bloom.sort(key=lambda layer: layer.slice_end_ms)
        self._replace(exact, bloom)

    def _restored_times(self, state: LayerState, now_ms: int) -> tuple[int, int]:
        """Return the end of the slice, and the time until which its ids may have been used."""
        slice_ms = self._slice_ms
        slice_end_ms = now_ms - state.slice_age_ms
        if slice_end_ms > now_ms + slice_ms:
            slice_end_ms = now_ms // slice_ms * slice_ms  # its slices were longer, see `reshape`
        # Two readings of a clock differ a little. So a slice that ends just before one of ours is the same one,
        # or each restart would start a layer. Its ids may be used a little longer without an event, for which
        # other gateways allow (`silence_ms`).
        aligned_ms = self._slice_end_ms(slice_end_ms - 1)
        if aligned_ms - slice_end_ms <= _tolerance_ms(self._settings):
            slice_end_ms = aligned_ms
        latest_ms = now_ms + self._silence_ms
        return slice_end_ms, max(slice_end_ms, min(now_ms - state.used_age_ms, latest_ms))

    def _restored(self, state: LayerState, slice_end_ms: int, used_until_ms: int) -> _Layer:
        layer = _Layer.restored(state.design_count, state.bits, state.hashes, state.count, state.data)
        layer.slice_end_ms, layer.used_until_ms = slice_end_ms, used_until_ms
        layer.newest_of = state.newest_of
        return layer

    def clear(self) -> None:
        """Forget everything."""
        self._replace([], [])

    def _replace(self, exact: list[_ExactSlice], layers: list[_Layer]) -> None:
        """Replace the parts, and hold no more of the budget than they need."""
        self._exact, self._layers = exact, layers
        self._exact_count = sum(len(part.ids) for part in exact)
        needed = sum(layer.design_count for layer in layers) + EXACT_COST * self._exact_count
        self._hold(needed - self._held)
        self._note_next_expiry()

    def _hold(self, more: int) -> None:
        self._held += more
        self._budget.held += more

    def _parts(self) -> list[_ExactSlice | _Layer]:
        return [*self._exact, *self._layers]

    @property
    def secret(self) -> int:
        return int.from_bytes(self._key, "little")

    def live_ids(self, now_ms: int) -> int:
        """Return the number of distinct ids remembered."""
        self.expire(now_ms)
        return self._exact_count + sum(layer.newest_of for layer in self._layers)

    def is_empty(self, now_ms: int) -> bool:
        self.expire(now_ms)
        return not self._layers and not self._exact_count

    @property
    def size_bytes(self) -> int:
        return 8 * self._exact_count + sum(layer.size_bytes for layer in self._layers)

    def _slice_end_ms(self, now_ms: int) -> int:
        slice_ms = self._slice_ms
        return (now_ms // slice_ms + 1) * slice_ms

    def _note_next_expiry(self) -> None:
        ends = [part.used_until_ms for part in self._parts()]
        self._next_expiry_ms = min(ends) + self._settings.remember_ms if ends else 0

    def _exact_slice_of(self, entry: int, now_ms: int) -> _ExactSlice | None:
        """Return the exact slice that holds the id. Expires first."""
        if now_ms >= self._next_expiry_ms:
            self.expire(now_ms)
        for part in reversed(self._exact):
            if entry in part:
                return part
        return None

    def _newest_holding(self, pair: HashPair) -> _Layer | None:
        for layer in reversed(self._layers):
            if pair in layer:
                return layer
        return None

    def _has_exact_room(self) -> bool:
        return self._exact_count < self._exact_ids and self._budget.share(self._held) >= EXACT_COST

    def _exact_target(self, slice_end_ms: int) -> _ExactSlice:
        """Return the exact slice to insert into: the last one, or a new one when the slice has passed."""
        last = self._exact[-1] if self._exact else None
        if last is not None and (last.slice_end_ms >= slice_end_ms or len(self._exact) >= MOST_LAYERS):
            # See `_target`: ids in the last one may be remembered longer.
            last.slice_end_ms = max(last.slice_end_ms, slice_end_ms)
            last.used_until_ms = max(last.used_until_ms, slice_end_ms)
            return last
        target = _ExactSlice(slice_end_ms, slice_end_ms)
        self._exact.append(target)
        self._note_next_expiry()
        return target

    def _target(self, slice_end_ms: int, floor: int) -> _Layer:
        """Return the layer to insert into: the last one, or a new one when the slice has passed or it is full."""
        if not self._layers:
            return self._start_layer(slice_end_ms, self._affordable(self._design_count(None, floor)))
        last = self._layers[-1]
        # A restored slice may end after ours, and a history may hold older uses. Both go to the last layer,
        # which remembers its ids long enough.
        in_slice = last.slice_end_ms >= slice_end_ms
        if in_slice and last.count < last.design_count:
            return last
        slice_end_ms = max(slice_end_ms, last.slice_end_ms)
        design_count = self._affordable(self._design_count(last if in_slice else None, floor))
        if design_count and len(self._layers) < MOST_LAYERS:
            return self._start_layer(slice_end_ms, design_count)
        # No room: the last layer continues and closes later, so its ids are remembered longer.
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
        """Return the design count of a new layer, by the ids in use and not only by the quota.

        5,000 producers under a quota of 100 would need hundreds of layers, and a quota of a billion is no reason to
        hold memory for a billion.
        """
        floor = min(max(floor, SMALLEST_LAYER), LARGEST_FIRST_LAYER)
        if filled is not None:
            return max(floor, 2 * filled.design_count)
        if not self._layers:
            return floor
        # Scaled to a whole slice: a restart may have cut a slice short.
        since_ms = self._layers[-1].slice_end_ms - self._slice_ms
        previous = sum(layer.newest_of for layer in self._layers if layer.slice_end_ms > since_ms)
        # With a margin, or one id more than in the last slice would double the layer.
        return max(floor, previous + previous // 64)

    def _affordable(self, design_count: int) -> int:
        """Return the design count that is within the filter's share, 0 when not even the smallest layer fits."""
        room = self._budget.room(self._held, EXACT_COST * self._exact_count)
        return min(design_count, room) if room >= SMALLEST_LAYER else 0


def silence_ms(settings: ProducerIdSettings) -> int:
    """Return how long (ms) another gateway may use an id without publishing it again."""
    return settings.slice_ms + _tolerance_ms(settings)


def kept_ms(settings: ProducerIdSettings) -> int:
    """Return how much history (ms) a restore must read: `remember_ms` + `silence_ms`."""
    return settings.remember_ms + silence_ms(settings)


def _tolerance_ms(settings: ProducerIdSettings) -> int:
    return settings.slice_ms // 64
