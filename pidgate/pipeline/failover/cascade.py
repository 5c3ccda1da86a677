"""Deaths of brokers hour by hour, as real ones would die.

Replicas hold the states already, so a leader's move adds nothing (KIP-847; measured in docs/pipeline/failover.md). What
does: clients that open new producers when a broker dies; partitions reassigned to brokers that had no replica of them;
and restarts: a broker that died of its heap reads the same states again from its snapshots and dies again, with another
storm of clients each time, until enough of them have expired.

Knows neither Spark nor users: a few arrays of hours x brokers, summed up before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MEBIBYTE = 2**20

BYTES_PER_STATE = 300
"""As measured (docs/pipeline/failover.md): one (id, partition) after one batch. Up to 460 after five, since a
broker keeps the places of the last five batches; after a restart it is back at one."""

BASE_BYTES = 34_000_000
"""As measured: live in a small broker (256 partitions, few clients) without any state. A real one's: its heap after a
full collection, less its states."""


@dataclass(frozen=True, slots=True)
class Heap:
    """A broker's heap, and what a producer state takes of it."""

    heap_bytes: float
    base_bytes: float = BASE_BYTES
    bytes_per_state: float = BYTES_PER_STATE
    usable_share: float = 1.0
    """Of the heap, what may be live; the rest is for requests and the collector."""

    @property
    def limit_bytes(self) -> float:
        return self.heap_bytes * self.usable_share

    @property
    def states_that_fit(self) -> float:
        return (self.limit_bytes - self.base_bytes) / self.bytes_per_state

    def used_bytes(self, states: float) -> float:
        return self.base_bytes + states * self.bytes_per_state


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Load of each broker by the past and one quota; arrays are hours x brokers."""

    quota: str
    hours_ms: Sequence[int]
    brokers: Sequence[int]
    ids: Array
    states: Array
    storm_states: Array
    """States that one death in the hour adds, by clients that reopen."""
    allowance_states: Array
    """States that all deaths can add before the buckets are empty."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario on top of the past."""

    name: str = "as it was"
    lost_broker: int | None = None
    """Gone for one hour, for whatever reason."""
    lost_at_ms: int = 0
    reassign: bool = False
    """A dead broker's replicas are given to the living, evenly and for good."""
    expiry_hours: int = 24
    """Hours for which a storm's states stay."""


@dataclass(frozen=True, slots=True)
class BrokerHour:
    """One broker at the end of one hour; of a dead one what it would have to hold to come back."""

    broker: int
    hour_ms: int
    ids: float
    states: float
    dead: bool


@dataclass(slots=True)
class _Cluster:
    """The state of the run."""

    load: Load
    scenario: Scenario
    carries: Array
    """Row: broker; column: whose replicas it carries, 1 for its own."""
    dead: set[int] = field(default_factory=set)
    storms: list[int] = field(default_factory=list)
    """The hour of each death and failed restart."""

    def states(self, hour: int) -> Array:
        recent = [at for at in self.storms if hour - at <= self.scenario.expiry_hours]
        came = self.load.storm_states[recent].sum(axis=0)
        # No more than the buckets let in, however many deaths there are.
        added = np.minimum(came, self.load.allowance_states[hour])
        return np.asarray(self.carries @ (self.load.states[hour] + added))

    def dies(self, broker: int, hour: int) -> None:
        self.dead.add(broker)
        self.storms.append(hour)
        living = [other for other in range(len(self.carries)) if other not in self.dead]
        if self.scenario.reassign and living:
            self.carries[living] += self.carries[broker] / len(living)
            self.carries[broker] = 0


def run(load: Load, heap: Heap, scenario: Scenario) -> list[BrokerHour]:
    """Every broker in every hour. Of several that are too full the fullest dies first."""
    cluster = _Cluster(load, scenario, np.eye(len(load.brokers)))
    return [row for hour in range(len(load.hours_ms)) for row in _one_hour(cluster, heap, hour)]


def _one_hour(cluster: _Cluster, heap: Heap, hour: int) -> Iterator[BrokerHour]:
    load, scenario = cluster.load, cluster.scenario
    fits = heap.states_that_fit
    _restart(cluster, fits, hour)
    if scenario.lost_broker is not None and load.hours_ms[hour] == scenario.lost_at_ms:
        lost = load.brokers.index(scenario.lost_broker)
        if lost not in cluster.dead:
            cluster.dies(lost, hour)
    states = cluster.states(hour)
    while too_full := [b for b in range(len(states)) if b not in cluster.dead and states[b] > fits]:
        cluster.dies(max(too_full, key=lambda broker: states[broker]), hour)
        states = cluster.states(hour)
    ids = cluster.carries @ load.ids[hour]
    for index, broker in enumerate(load.brokers):
        dead = index in cluster.dead
        yield BrokerHour(broker, load.hours_ms[hour], float(ids[index]), float(states[index]), dead)


def _restart(cluster: _Cluster, fits: float, hour: int) -> None:
    """The dead try: those whose states fit are back; each of the others fails once more, and clients notice."""
    if cluster.scenario.reassign:
        return
    states = cluster.states(hour)
    back = {broker for broker in cluster.dead if states[broker] <= fits}
    cluster.dead -= back
    cluster.storms += [hour] * len(cluster.dead)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One run in one line, and the run."""

    quota: str
    scenario: str
    deaths: tuple[tuple[int, int], ...]
    """(hour_ms, broker) of each death of a full heap, in order of time."""
    peak_heap_bytes: float
    """The fullest heap that any broker has or, dead, would need."""
    peak_broker: int
    peak_hour_ms: int
    rows: Sequence[BrokerHour]

    @property
    def holds(self) -> bool:
        return not self.deaths


def verdict(load: Load, heap: Heap, scenario: Scenario, rows: Sequence[BrokerHour]) -> Verdict:
    """Brokers that died of their heap, and the fullest moment.

    A broker that was lost for another reason counts only when it cannot come back.
    """
    fullest = max(rows, key=lambda row: row.states)
    deaths: list[tuple[int, int]] = []
    before: set[int] = set()
    for row in rows:
        is_the_lost_one = row.broker == scenario.lost_broker and (
            scenario.reassign or row.hour_ms == scenario.lost_at_ms
        )
        if is_the_lost_one or not row.dead:
            before.discard(row.broker)
        elif row.broker not in before:
            before.add(row.broker)
            deaths.append((row.hour_ms, row.broker))
    return Verdict(
        load.quota,
        scenario.name,
        tuple(deaths),
        heap.used_bytes(fullest.states),
        fullest.broker,
        fullest.hour_ms,
        rows,
    )


def worst_loss(load: Load, broker: int | None, reassign: bool, expiry_hours: int) -> Scenario:
    """A broker, or the fullest one, is lost in its fullest hour."""
    if broker is None:
        broker = load.brokers[int(np.argmax(load.states.max(axis=0)))]
    hour = int(np.argmax(load.states[:, load.brokers.index(broker)]))
    return Scenario(f"broker {broker} lost", broker, load.hours_ms[hour], reassign, expiry_hours)
