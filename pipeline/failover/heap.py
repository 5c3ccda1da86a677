"""A broker's heap, and what a producer state takes of it. The defaults are measured: bench/failover_calibration.py."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 2**20

BYTES_PER_STATE = 300
"""One (id, partition) after one batch. Up to 460 after five, since a broker keeps the places of the last five batches;
after a restart it is back at one."""

BASE_BYTES = 34_000_000
"""Live in a small broker (256 partitions, few clients) without any state. A real one's: its heap after a full
collection, less its states."""


@dataclass(frozen=True, slots=True)
class Heap:
    """One broker's."""

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
