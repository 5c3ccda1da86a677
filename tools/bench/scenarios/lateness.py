"""Lateness of a gateway's event loop, by its own histogram, and how long it had to wait for its core meanwhile."""

from typing import Final, NamedTuple

from tools.bench.process_cost import waited_for_core_ns
from tools.bench.quantities import Measured
from tools.sandbox.gateway import GatewayProcess, Metrics

_NAME: Final = "pidgate_event_loop_lateness_seconds"


class Moment(NamedTuple):
    """Counts until then."""

    metrics: Metrics
    waited_for_core_ns: int


def now(gateway: GatewayProcess) -> Moment:
    """Read both."""
    return Moment(gateway.metrics(), waited_for_core_ns(gateway.pid or 0))


def since(before: Moment, after: Moment) -> Measured:
    """Return how often the event loop's timer came between the two, how late by its own work and for want of a core.

    `waited_for_core_ms` is that of all threads, at any moment.
    """

    def counted(name: str, **labels: str) -> float:
        return after.metrics.value(name, **labels) - before.metrics.value(name, **labels)

    ticks = counted(f"{_NAME}_count", cause="busy")
    return {
        "ticks": ticks,
        "late_5ms": ticks - counted(f"{_NAME}_bucket", cause="busy", le="0.005"),
        "late_ms": 1e3 * counted(f"{_NAME}_sum", cause="busy") / max(ticks, 1),
        "late_without_core_ms": 1e3 * counted(f"{_NAME}_sum", cause="no_core") / max(ticks, 1),
        "waited_for_core_ms": (after.waited_for_core_ns - before.waited_for_core_ns) / 1e6,
    }
