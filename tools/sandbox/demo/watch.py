"""The broker under watch, from outside: its heap, the producer ids it keeps, and whether it lives."""

import time
from dataclasses import dataclass

from tools.sandbox.demo.plan import CLICKS, NODE_ID
from tools.sandbox.kafka import Cluster
from tools.sandbox.wire import BrokerSilent, ProducerStates

# Each of mallory's ids is written to every partition, so that one of them shows them all. Asking for one
# costs the broker next to nothing; asking for all 200 of a broker that is short of memory might kill it.
_WATCHED_PARTITION = 0


@dataclass(frozen=True, slots=True)
class Point:
    """One look at the broker, `at_s` after the rogues began."""

    at_s: float
    heap_used_mb: int
    """Heap in use after the latest garbage collection."""
    ids: int
    """Producer ids whose state the broker keeps for one partition of clicks; the latest known while it is
    silent."""
    alive: bool


class BrokerWatch:
    """Recorder of points, taken whenever asked."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._states = ProducerStates(cluster.nodes[NODE_ID], timeout_s=1.0)
        self._began_s = time.monotonic()
        self.points: list[Point] = []

    def begin(self) -> None:
        """The rogues begin now."""
        self._began_s = time.monotonic()
        self.points.clear()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def look(self) -> Point:
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
