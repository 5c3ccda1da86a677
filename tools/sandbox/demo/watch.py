"""Observation of the broker from outside: heap, kept producer ids, and liveness."""

import math
import threading
import time
from dataclasses import dataclass
from typing import Self

from tools.sandbox.demo.plan import CLICKS, NODE_ID
from tools.sandbox.errors import NotInTime
from tools.sandbox.kafka import Cluster
from tools.sandbox.wire import BrokerSilent, ProducerStates

# Each of mallory's ids is written to every partition, so one partition shows all. Querying one is cheap;
# querying all 200 might kill a broker that is short of memory.
_WATCHED_PARTITION = 0


_TIMER_S = 0.005


class Progress:
    """A wait that ends only when nothing has changed for `patience_s`."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._seen: object = None
        self._since_s = time.monotonic()

    def check(self, seen: object, missing: str) -> None:
        """Note the state of what is waited for. Raises NotInTime, with `missing` as its text."""
        now_s = time.monotonic()
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        elif now_s - self._since_s > self._patience_s:
            raise NotInTime(f"nothing has changed for {self._patience_s:g} s: {missing}")


class MachineDelay:
    """Lateness of a timer of 5 ms, which does nothing: the delay that the machine's scheduler adds to all."""

    def __init__(self) -> None:
        self._late_ms: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            began_s = time.monotonic()
            time.sleep(_TIMER_S)
            self._late_ms.append((time.monotonic() - began_s - _TIMER_S) * 1_000)

    def p99_ms(self) -> float:
        late_ms = sorted(self._late_ms)
        return late_ms[math.ceil(0.99 * len(late_ms)) - 1] if late_ms else 0.0


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
