"""Producer states at the brokers, forecast from the pairs of producer id and partition that pass. PURE.

A broker keeps one state for each pair, on every replica of the partition, until the pair has not been used for
`remember` (the brokers' producer.id.expiration.ms). No broker is asked. A HyperLogLog sketch counts distinct pairs in
bounded memory: a pair that is noted twice counts once, and sketches of several gateways join without counting a pair
twice. Registers of a quarter of `remember` form a layer, and a layer ends `remember` after its last pair may have come.

A client that makes ids up can choose pairs that raise no register. Its own forecast is then too low; other users are
not affected.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import mmh3

from pidgate.quota.entities import Portions, User, table_key
from pidgate.quota.settings import LAYERS, ProducerIdSettings

REGISTERS: Final = 1_024
"""Registers of a broker: a standard error of 3 %."""
REGISTERS_OF_USER: Final = 256
"""Registers of a user: 6 %, which is enough to rank users."""
MOST_BROKERS: Final = 1_000
_INDEX_BITS: Final = 10
_MOST_RANK: Final = 64 - _INDEX_BITS + 1
_HIGHEST: Final = 1 << (64 - _INDEX_BITS)
HISTORY_MS: Final = 3_600_000
"""Growth is that of the last hour."""
_MINUTE_MS: Final = 60_000


def pair_hash(producer_id: int, topic: bytes, partition: int) -> int:
    """Return 64 bits for a pair, the same in all gateways."""
    key = producer_id.to_bytes(8, "big", signed=True) + partition.to_bytes(4, "big", signed=True) + topic
    return mmh3.hash64(key, signed=False)[0]


class PairSketch:
    """Count of distinct pairs used within `remember_ms`. `size`: registers, a power of two up to REGISTERS."""

    __slots__ = ("_layers", "_slice_ms", "registers", "size", "version")

    def __init__(self, size: int, slice_ms: int) -> None:
        self.size = size
        self.version = 0
        """Changes with the registers."""
        self._slice_ms = slice_ms
        self._layers: dict[int, bytearray] = {}
        """By number of the slice."""
        self.registers = bytearray(size)
        """Registers of all layers together, as of the last `expire`."""

    def add(self, hashed: int, now_ms: int) -> bool:
        """Note a pair; return whether a register of its layer has changed."""
        layer = self._layer(now_ms // self._slice_ms)
        at = hashed & (self.size - 1)
        rest = hashed >> _INDEX_BITS | _HIGHEST
        rank = (rest & -rest).bit_length()  # the number of zeros before the first one, and one more
        if rank <= layer[at]:
            return False
        layer[at] = rank
        if rank > self.registers[at]:
            self.registers[at] = rank
            self.version += 1
        return True

    def merge(self, registers: bytes, at_ms: int, now_ms: int) -> None:
        """Note the pairs that another gateway had counted at `at_ms`. Registers of another form are ignored."""
        oldest = now_ms // self._slice_ms - LAYERS
        number = min(at_ms, now_ms) // self._slice_ms
        if number < oldest or len(registers) != self.size or max(registers) > _MOST_RANK:
            return
        layer = self._layer(number)
        layer[:] = map(max, layer, registers)
        self.registers[:] = map(max, self.registers, registers)
        self.version += 1

    def _layer(self, number: int) -> bytearray:
        layer = self._layers.get(number)
        if layer is None:
            layer = self._layers[number] = bytearray(self.size)
        return layer

    def expire(self, now_ms: int) -> None:
        """Drop the layers of pairs that have not been used within `remember`."""
        oldest = now_ms // self._slice_ms - LAYERS
        ended = [number for number in self._layers if number < oldest]
        for number in ended:
            del self._layers[number]
        if ended:
            nothing = bytes(self.size)
            self.registers[:] = map(max, nothing, nothing, *self._layers.values())
            self.version += 1

    @property
    def is_empty(self) -> bool:
        return not self._layers

    def newest(self, now_ms: int) -> bytes:
        """Return the registers of the slice that has not ended; empty if no pair has come in it."""
        return bytes(self._layers.get(now_ms // self._slice_ms, b""))


def estimate(registers: bytes | bytearray) -> int:
    """Return the number of distinct pairs in these registers (Ertl 2017, "New cardinality estimation algorithms")."""
    size = len(registers)
    ranks = Counter(registers)
    if ranks[0] == size:
        return 0
    total = 0.0
    for rank in range(_MOST_RANK, 0, -1):
        total = (total + ranks[rank]) / 2
    return round(size * size / (2 * math.log(2)) / (total + size * _sigma(ranks[0] / size)))


def _sigma(part: float) -> float:
    """Return the correction for registers without a pair."""
    power, total, before = 1.0, part, -1.0
    while total != before:
        part *= part
        before = total
        total += part * power
        power += power
    return total


@dataclass(frozen=True, slots=True)
class States:
    """Producer states of one broker. `per_hour`: how many more it has than an hour ago."""

    node_id: int
    count: int
    per_hour: int


class _Broker:
    """Own pairs and those of other gateways are apart: a gateway tells others of its own alone."""

    __slots__ = ("_count", "_version", "history", "others", "own", "untold")

    def __init__(self, slice_ms: int) -> None:
        self.own = PairSketch(REGISTERS, slice_ms)
        self.others = PairSketch(REGISTERS, slice_ms)
        self.untold = False
        self._count = self._version = 0
        self.history: deque[tuple[int, int]] = deque()
        """(ms, states) by minute."""

    def count(self, now_ms: int) -> int:
        self.own.expire(now_ms)
        self.others.expire(now_ms)
        version = self.own.version + self.others.version
        if version != self._version:
            self._version = version
            self._count = estimate(bytes(map(max, self.own.registers, self.others.registers)))
        return self._count

    def note_count(self, now_ms: int) -> None:
        """Note the states of this minute."""
        if not self.history or now_ms - self.history[-1][0] >= _MINUTE_MS:
            self.history.append((now_ms, self.count(now_ms)))
        while now_ms - self.history[0][0] > HISTORY_MS:
            self.history.popleft()


class ProducerStates:
    """Forecast by broker, over all gateways, and by user, of this gateway's traffic."""

    def __init__(self, settings: ProducerIdSettings) -> None:
        self._slice_ms = max(1, settings.remember_ms // LAYERS)
        self._brokers: dict[int, _Broker] = {}
        self._users: dict[User, PairSketch] = {}
        self._portions = Portions[User]()

    def note(self, user: User, hashed: int, node_ids: Iterable[int], now_ms: int) -> None:
        """Note a pair that was forwarded, and the brokers with a replica of its partition."""
        user = table_key(user, self._users)
        sketch = self._users.get(user)
        if sketch is None:
            sketch = self._users[user] = PairSketch(REGISTERS_OF_USER, self._slice_ms)
        sketch.add(hashed, now_ms)
        for node_id in node_ids:
            broker = self._broker(node_id)
            if broker is not None and broker.own.add(hashed, now_ms):
                broker.untold = True

    def _broker(self, node_id: int) -> _Broker | None:
        broker = self._brokers.get(node_id)
        if broker is None and len(self._brokers) < MOST_BROKERS:
            broker = self._brokers[node_id] = _Broker(self._slice_ms)
        return broker

    def find_unpublished(self, now_ms: int) -> Iterator[tuple[int, bytes]]:
        """Yield (broker, registers) of the brokers with more pairs than other gateways were told of."""
        for node_id, broker in self._brokers.items():
            if broker.untold and (registers := broker.own.newest(now_ms)):
                broker.untold = False
                yield node_id, registers

    def merge(self, node_id: int, registers: bytes, at_ms: int, now_ms: int) -> None:
        """Note what another gateway, or an earlier run of this one, had counted at `at_ms`."""
        broker = self._broker(node_id)
        if broker is not None:
            broker.others.merge(registers, at_ms, now_ms)

    def by_broker(self, now_ms: int) -> list[States]:
        """Return the forecast of each broker, the fullest first."""
        found = []
        for node_id, broker in self._brokers.items():
            count = broker.count(now_ms)
            since_ms, before = broker.history[0] if broker.history else (now_ms, count)
            passed_ms = max(_MINUTE_MS, now_ms - since_ms)
            found.append(States(node_id, count, (count - before) * HISTORY_MS // passed_ms))
        return sorted(found, key=lambda states: -states.count)

    def fullest(self, now_ms: int) -> States | None:
        """Return the forecast of the fullest broker; None if none is known."""
        return next(iter(self.by_broker(now_ms)), None)

    def of_user(self, user: User, now_ms: int) -> int:
        """Return the pairs that the user has used at this gateway."""
        sketch = self._users.get(user)
        if sketch is None:
            return 0
        sketch.expire(now_ms)
        return estimate(sketch.registers)

    def sweep(self, now_ms: int) -> None:
        """Note how many states brokers have, and drop the sketches of users without a pair, of the next portion."""
        for broker in self._brokers.values():
            broker.note_count(now_ms)
        for user, sketch in self._portions.of(self._users):
            sketch.expire(now_ms)
            if sketch.is_empty:
                del self._users[user]
