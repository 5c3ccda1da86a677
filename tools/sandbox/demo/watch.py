"""Observation of the broker from outside: heap, kept producer ids, and liveness."""

import time
from dataclasses import dataclass

from tools.sandbox.demo.plan import CLICKS, NODE_ID
from tools.sandbox.kafka import Cluster
from tools.sandbox.wire import BrokerSilent, ProducerStates

# Each of mallory's ids is written to every partition, so one partition shows all. Querying one is cheap;
# querying all 200 might kill a broker that is short of memory.
_WATCHED_PARTITION = 0


@dataclass(frozen=True, slots=True)
class Point:
    """An observation of the broker, `at_s` after the rogues began."""

    at_s: float
    heap_used_mb: int
    """Heap in use after the latest garbage collection."""
    ids: int
    """Ids with state in one partition of clicks; the last known value if the broker does not respond."""
    alive: bool


class BrokerWatch:
    """Recorder of observations on demand."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._states = ProducerStates(cluster.nodes[NODE_ID], timeout_s=1.0)
        self._began_s = time.monotonic()
        self.points: list[Point] = []

    def begin(self) -> None:
        """Start the rogues' time."""
        self._began_s = time.monotonic()
        self.points.clear()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def observe_broker(self) -> Point:
        alive = self._cluster.node(NODE_ID).is_alive
        ids = self.points[-1].ids if self.points else 0
        if alive:
            try:
                ids = len(self._states.ids(CLICKS, [_WATCHED_PARTITION])[_WATCHED_PARTITION])
            except BrokerSilent:
                alive = self._cluster.node(NODE_ID).is_alive
        heap = self._cluster.node(NODE_ID).heap_samples()
        point = Point(self.elapsed_s, heap[-1].used_mb if heap else 0, ids, alive)
        self.points.append(point)
        return point

    def close(self) -> None:
        self._states.close()
