"""Broker deaths hour by hour, modelled on real brokers.

Replicas already hold the states, so a leader change adds none (KIP-847; measured in
docs/how-to/pipeline/failover.md). States are added by clients that open new producers after a death, by partitions
reassigned to brokers without a replica, and by restarts. A broker that died of its heap loads the same states
from its snapshots and dies again, each time with another storm of clients, until enough states have expired.

Knows neither Spark nor users: only arrays of hours x brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MEBIBYTE = 2**20

BYTES_PER_STATE = 300
"""Measured (docs/how-to/pipeline/failover.md): one (id, partition) after one batch.

Up to 460 after five batches, because a broker keeps the offsets of the last five; one again after a restart.
"""

BASE_BYTES = 34_000_000
"""Measured: live heap of a small broker (256 partitions, few clients) without states.

For a real broker: its heap after a full collection, minus its states.
"""


@dataclass(frozen=True, slots=True)
class Heap:
    """A broker's heap and the size of a producer state."""

    heap_bytes: float
    base_bytes: float = BASE_BYTES
    bytes_per_state: float = BYTES_PER_STATE
    usable_share: float = 0.9
    """Share of the heap that may be live: a broker with less to spare only collects garbage."""

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
    """Load of each broker from the past and one quota; arrays are hours x brokers."""

    quota: str
    hours_ms: Sequence[int]
    brokers: Sequence[int]
    ids: Array
    states: Array
    storm_states: Array
    """States that one death in this hour adds through reopening clients."""
    allowance_states: Array
    """States that all deaths can add until the buckets are empty."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario on top of the past."""

    name: str = "as it was"
    lost_broker: int | None = None
    """Lost for one hour, for any reason."""
    lost_at_ms: int = 0
    reassign: bool = False
    """Whether a dead broker's replicas move permanently and evenly to the others."""
    expiry_hours: int = 24
    """Lifetime of a storm's states."""


@dataclass(frozen=True, slots=True)
class BrokerHour:
    """A broker at the end of an hour; for a dead one the load it would need to hold to restart."""

    broker: int
    hour_ms: int
    ids: float
    states: float
    dead: bool


@dataclass(slots=True)
class _Cluster:
    """State of the simulation."""

    load: Load
    scenario: Scenario
    carries: Array
    """Row: broker; column: broker whose replicas it holds, 1 for its own."""
    dead: set[int] = field(default_factory=set)
    storms: list[int] = field(default_factory=list)
    """The hour of each death and failed restart."""

    def states(self, hour: int) -> Array:
        recent = [at for at in self.storms if hour - at <= self.scenario.expiry_hours]
        came = self.load.storm_states[recent].sum(axis=0)
        # At most the bucket's admissions, regardless of the number of deaths.
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
    """Return every broker in every hour. Of several overloaded brokers, the fullest dies first."""
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
    """Restart dead brokers: those whose states fit return, each other one fails and causes another storm."""
    if cluster.scenario.reassign:
        return
    states = cluster.states(hour)
    back = {broker for broker in cluster.dead if states[broker] <= fits}
    cluster.dead -= back
    cluster.storms += [hour] * len(cluster.dead)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Summary of a run, and the run."""

    quota: str
    scenario: str
    deaths: tuple[tuple[int, int], ...]
    """(hour_ms, broker) of each death of a full heap, in time order."""
    peak_heap_bytes: float
    """The largest heap that a broker has, or would need if dead."""
    peak_broker: int
    peak_hour_ms: int
    rows: Sequence[BrokerHour]

    @property
    def holds(self) -> bool:
        return not self.deaths


def verdict(load: Load, heap: Heap, scenario: Scenario, rows: Sequence[BrokerHour]) -> Verdict:
    """Return the brokers that died of their heap, and the largest heap.

    A broker lost for another reason counts only if it cannot restart.
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
    """Return the loss of a broker (default: the fullest one) in its fullest hour."""
    if broker is None:
        broker = load.brokers[int(np.argmax(load.states.max(axis=0)))]
    hour = int(np.argmax(load.states[:, load.brokers.index(broker)]))
    return Scenario(f"broker {broker} lost", broker, load.hours_ms[hour], reassign, expiry_hours)
