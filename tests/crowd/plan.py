"""What a crowd does, and when. Values only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

OF_A_GATEWAY: Final = 6_500
"""Connections of one gateway while all are there: it has two open files for each, of 20,000 on many machines, and a
third more connections while another gateway is gone.
"""
OF_A_PROCESS: Final = 10_000
"""Connections of one process of clients, and of one broker."""
RATE: Final = 20
"""New producer ids that each user may bring in a window, and the burst: ten at the start, ten at its deployment."""
RAISED: Final = 60
ROGUE_TRIES_PER_S: Final = 1.0
"""Of each rogue: an id a second, of which its quota admits one in some fifty."""
MORE_BY_FLEET: Final = 4
"""Ids that a user may get beyond its quota: several gateways may give the same token at one moment, where a bucket
runs empty (docs/how-to/fleet.md).
"""
DEPLOYMENTS_PER_S: Final = 0.6
"""Of users with ten producers each: six new connections and ids a second."""
BACK_WITHIN_S: Final = 300.0
"""Everybody is connected again so long after a gateway stopped; on a busy machine the clients take most of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdPlan:
    """`users` with `each` connections: idempotent producers that send a record in `every_s`, a few more often."""

    minutes: float
    users: int = 2_000
    each: int = 10
    rogues: int = 20
    every_s: float = 40.0
    busy: int = 100
    """Connections that send once a second."""
    connects_per_s: float = 100.0
    only_gateways: int = 0
    """So many gateways; 0: one more than are needed."""

    @property
    def connections(self) -> int:
        return self.users * self.each

    @property
    def gateways(self) -> int:
        return self.only_gateways or 1 + max(1, -(-self.connections // (OF_A_GATEWAY + 200)))

    @property
    def processes(self) -> int:
        return max(2, -(-self.connections // OF_A_PROCESS))

    @property
    def deployments(self) -> int:
        """Users all of whose producers are started again, with new ids, at some time."""
        return min(self.users, round(self.duration_s * DEPLOYMENTS_PER_S))

    @property
    def ramp_s(self) -> float:
        return self.connections / self.connects_per_s

    @property
    def duration_s(self) -> float:
        """From the end of the ramp."""
        return self.minutes * 60

    @property
    def window_s(self) -> int:
        return max(60, round(self.duration_s / 4))

    def moments(self) -> dict[str, float]:
        """Seconds after the ramp: each leaves a quarter of the time to what follows."""
        return {
            "reload": self.duration_s * 0.2,
            "restore": self.duration_s * 0.4,
            "fail-over": self.duration_s * 0.7,
        }

    def most_ids(self, seconds: float, rate: int = RATE) -> float:
        """New ids that a user's quota admits in so many seconds."""
        return rate * (1 + seconds / self.window_s) + 1 + MORE_BY_FLEET

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "connections": self.connections,
            "gateways": self.gateways,
            "window_s": self.window_s,
            "rate": RATE,
        }
