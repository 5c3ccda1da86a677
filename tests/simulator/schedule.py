"""A schedule: what a simulation is set up as, and what happens in it. Plain data, so that it can be cut and printed.

`drawn` (drawing.py) makes one of a seed. A step that names what is not there does nothing: any part of a schedule is a
schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Shape(StrEnum):
    """What stands between clients and brokers."""

    DIRECT = "direct"
    """Nothing: what the checks find here, no gateway has done."""
    ONE = "one gateway"
    FLEET = "a fleet of two"
    ONE_PORT = "a fleet of two on one port"
    """Each connection of a client comes to one of the two by chance."""
    SIDECARS = "a gateway before each broker"
    """A producer id comes through all of them; they tell each other."""

    @property
    def is_fleet(self) -> bool:
        return self in (Shape.FLEET, Shape.ONE_PORT, Shape.SIDECARS)

    @property
    def shares_ids(self) -> bool:
        """Whether a client that stays where it began reaches brokers through several gateways."""
        return self in (Shape.ONE_PORT, Shape.SIDECARS)


class Weather(StrEnum):
    """How the network treats all connections."""

    CALM = "calm"
    SLOW = "slow"
    CHOPPED = "chopped"
    """Every write arrives in pieces."""
    NARROW = "narrow"
    """Buffers of a few hundred bytes."""
    EVEN = "even"
    """Every write arrives whole, after the same time."""


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """One client. `hurry_s`: its delivery time-out, where it is not patient."""

    name: str
    family: str
    user: str = "alice"
    is_transactional: bool = False
    gateway: int = 0
    """The gateway of a fleet that it begins with."""
    hurry_s: float | None = None


@dataclass(frozen=True, slots=True)
class QuotaSetup:
    """Quotas of all users, as a configuration file has them. None: not set."""

    is_enforced: bool = True
    rate: int | None = 1
    window_ms: int = 2_000
    burst: float = 0.01
    max_throttle_ms: int = 1_000
    enforces_transactional: bool = False
    refuses_init: bool = False
    producer_byte_rate: int | None = None
    consumer_byte_rate: int | None = None
    cluster_rate: int | None = None
    """New producer ids of all users together, in a window."""
    transactional_ids_rate: int | None = None
    states_rate: int | None = None
    """New pairs of producer id and partition."""
    fuse: int | None = None
    """Producer states that a broker has room for."""
    sticky_entries: int | None = None
    queue: int | None = None

    @property
    def capacity(self) -> float:
        """Ids that a user may bring at once."""
        return (self.rate or 0) * self.burst


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that stands still."""

    shape: Shape = Shape.ONE
    brokers: int = 2
    partitions: int = 2
    is_replicated_late: bool = False
    """Followers fetch some time after the leader's append; otherwise at once."""
    has_login: bool = False
    has_state_dir: bool = False
    has_events: bool = False
    is_long_known: bool = False
    """The clients' ids have been in use for longer than ids are watched, when the steps begin."""
    lend_after: int | None = None
    """Requests in a row after which a connection is lent to a lane. None: there are no lanes."""
    lanes_only_look: bool = False
    """They are asked about what the gateway itself reads and writes, as they are where it has TLS."""
    passes_on: bool = False
    """Records are large, and gateways pass on as it comes what they may, not only what is larger than 1.25 MiB."""
    fresh_partitions: int = 0
    """Of a long known id: the last ones, to which it has not written yet."""
    weather: Weather = Weather.CALM
    buffered_total_bytes: int | None = None
    """Memory of a gateway's process, and the longest frame, where that is little; then records are very large."""
    readers: tuple[str, ...] = ()
    """Consumers of alice, each follows all partitions. By the way they read (READINGS in clients/traits.py)."""
    quotas: QuotaSetup = field(default_factory=QuotaSetup)
    clients: tuple[ClientSetup, ...] = ()


Step = tuple[Any, ...]
"""When (ms since the steps began), a verb (steps.py), its arguments."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """`seed` also draws what the network and the clients do by chance."""

    seed: int
    setup: Setup
    steps: tuple[Step, ...]

    @property
    def length_ms(self) -> int:
        return max((step[0] for step in self.steps), default=0)
