"""A gateway counts each byte that it passes once, whether a lane carries it or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulator.clients.batches import ModelViolation

LOST_BYTES: Final = 1_000
"""Answers to connections that end at that moment are counted."""

if TYPE_CHECKING:
    from tests.simulator.world import World


def check(world: World) -> None:
    """Raise ModelViolation. A gateway that has begun anew has forgotten what it had counted."""
    starts = [whom for _, what, whom, _ in world.fleet.history if what == "start"]
    for gateway in world.fleet.gateways:
        if gateway.serving is None or gateway.process is None or starts.count(gateway.host) != 1:
            continue
        gateway.process.call(gateway.serving.traffic.shared.lanes.count)
        counters = gateway.serving.traffic.counters
        written = sum(
            len(what)
            for _, link, writer, what in world.network.written or ()
            if writer == gateway.host and not link.startswith(f"{writer} -> ") and isinstance(what, bytes)
        )
        if not written <= counters.bytes_to_clients <= written + LOST_BYTES:
            raise ModelViolation(
                f"{gateway.host} has counted {counters.bytes_to_clients} bytes to clients, and wrote {written}"
            )
