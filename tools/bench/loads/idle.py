"""Connections that say hello and then nothing: what each costs the process between."""

import time
from dataclasses import dataclass

from tools.bench.loads.client import Through, connect
from tools.bench.process_cost import cost_of_watched

# Open before the first measurement, so that first-time allocations do not count as a connection's.
WARM_CONNECTIONS = 50
_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class IdlePlan:
    """Number of connections."""

    connections: int


def run_idle(through: Through, plan: IdlePlan) -> dict[str, float]:
    """Open the connections one after the other and hold them; memory is read while all are open."""
    held = []
    for _ in range(WARM_CONNECTIONS):
        held.append(connect(through.address))
    time.sleep(_SETTLE_S)
    before = cost_of_watched(through.watch)
    start = time.monotonic()
    for _ in range(plan.connections):
        held.append(connect(through.address))
    seconds = time.monotonic() - start
    time.sleep(_SETTLE_S)
    after = cost_of_watched(through.watch)
    for connection in held:
        connection.close()
    return {
        "connections": plan.connections,
        "seconds": seconds,
        "rss_before_bytes": before.rss_bytes,
        "rss_bytes": after.rss_bytes - before.rss_bytes,
        "cpu_s": (after - before).cpu_ns / 1e9,
        "wakeups": (after - before).wakeups,
    }
