"""Each limit with its present value, its highest value since the start, and when it was last hit.

Values are sampled once a second. A hit is counted where a limit closes, delays or refuses something. Its time is that
of the next sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.present.explaining import Moment
from pidgate.gateway.proxy.connection_quotas import LEAST_STRANGERS, STRANGERS, USER_BURST_MS
from pidgate.quota.fuse import TRIPS_ABOVE

if TYPE_CHECKING:
    from pidgate.gateway.proxy.connection import Shared


class Level(NamedTuple):
    """A limit and its present value. `now` None: it has none. `whose`: the user, address or broker with the most."""

    name: str
    now: float | None
    limit: float | None
    hits: int
    unit: str = ""
    whose: str = ""


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit as a page shows it. `beyond`: what happens above it."""

    name: str
    now: float | None
    most: float | None
    limit: float | None
    unit: str
    whose: str
    hits: int
    last_hit_wall_ms: int | None
    beyond: str


BEYOND: Final = {
    "limits.frame": "the connection is closed (protocol)",
    "limits.buffered_total": "reading pauses",
    "limits.idle": "the connection is closed (idle)",
    "limits.connections": "no connection is accepted until one has closed",
    "limits.connections_per_user": "the connection is closed after its login",
    "limits.connections_rate_per_user": "its requests are read up to 10 s later",
    "limits.connections_per_address": "the connection is closed",
    "quotas.producer_ids.max_live_ids": "ids of a user above its share pass as known",
    "quotas.fuse": "users above their own quota are enforced, even if they are observed",
    "quotas.cluster_producer_ids_rate": "new ids of enforced users are refused",
    "connections without a login": "the oldest is closed",
    "TLS handshakes in progress": "the longest is closed",
}
"""By the key of the setting; without one, by name (docs/reference/limits.md)."""


class LimitWatch:
    """Call `sample` once a second; `rows` at any time."""

    def __init__(self, settings: Settings, shared: Shared) -> None:
        self._settings = settings
        self._shared = shared
        self._most: dict[str, float] = {}
        self._hits: dict[str, int] = {}
        self._last_hit_ms: dict[str, int] = {}
        self._cluster_hits = self._fuse_hits = 0

    def sample(self, now_ms: int) -> None:
        """Note the present values."""
        for level in self._levels(now_ms):
            if level.now is not None:
                self._most[level.name] = max(level.now, self._most.get(level.name, 0))
            if level.hits > self._hits.get(level.name, 0):
                self._last_hit_ms[level.name] = now_ms
            self._hits[level.name] = level.hits

    def rows(self, moment: Moment) -> list[LimitRow]:
        """Return every limit."""
        self.sample(moment.now_ms)
        rows = []
        for level in self._levels(moment.now_ms):
            last_ms = self._last_hit_ms.get(level.name)
            rows.append(
                LimitRow(
                    name=level.name,
                    now=level.now,
                    most=self._most.get(level.name),
                    limit=level.limit,
                    unit=level.unit,
                    whose=level.whose,
                    hits=level.hits,
                    last_hit_wall_ms=None if last_ms is None else moment.on_the_wall(last_ms),
                    beyond=BEYOND[level.name],
                )
            )
        return rows

    def _levels(self, now_ms: int) -> Iterator[Level]:
        shared, limits = self._shared, self._settings.limits
        counters, budget = shared.counters, shared.budget
        yield Level(
            "limits.frame",
            budget.largest_frame_bytes,
            limits.frame_bytes,
            counters.frames_too_large,
            "bytes",
            "largest so far",
        )
        yield Level(
            "limits.buffered_total", budget.used_bytes, budget.limit_bytes, counters.reads_paused, "bytes"
        )
        yield Level("limits.idle", None, limits.idle_ms, counters.connections_closed["idle"], "ms")
        yield from self._connections()
        yield from self._ids(now_ms)

    def _connections(self) -> Iterator[Level]:
        quotas, counters = self._shared.connection_quotas, self._shared.counters
        bounds, limited = quotas.limits, counters.connections_limited
        total = counters.connections_open
        yield Level("limits.connections", total, bounds.total, counters.connections_delayed["all"])
        user, most = quotas.busiest_user
        own = bounds.per_user if bounds.per_user is not None else max(1, bounds.total - total + most)
        yield Level("limits.connections_per_user", most, own, limited["user"], whose=user)
        user, ahead = quotas.fastest_user
        burst = bounds.per_user_per_s * USER_BURST_MS // 1_000
        delayed = counters.connections_delayed["user"]
        yield Level("limits.connections_rate_per_user", ahead, burst, delayed, "ahead of the rate", user)
        address, most = quotas.busiest_address
        yield Level(
            "limits.connections_per_address", most, bounds.per_address, limited["address"], whose=address
        )
        most_strangers = max(LEAST_STRANGERS, bounds.total // STRANGERS)
        yield Level("connections without a login", quotas.strangers, most_strangers, limited["silent"])
        yield Level("TLS handshakes in progress", quotas.handshakes, bounds.handshakes, limited["handshake"])

    def _ids(self, now_ms: int) -> Iterator[Level]:
        state = self._shared.admission.state
        table = state.table if state.is_restored else None
        held, limit, overfull = (0, 0, 0) if table is None else table.filter_entries
        per_id = limit / max(1, table.quotas.producer_ids.max_live_ids) if table is not None and limit else 1
        yield Level("quotas.producer_ids.max_live_ids", held / per_id, limit / per_id, overfull, "ids")
        yield self._fuse(now_ms)
        cluster = None if table is None else table.cluster
        if cluster is None:
            yield Level("quotas.cluster_producer_ids_rate", None, None, 0, "ids")
            return
        left, full = cluster.units(now_ms) / cluster.token_units, cluster.capacity_units / cluster.token_units
        self._cluster_hits += left < 0
        yield Level("quotas.cluster_producer_ids_rate", full - left, full, self._cluster_hits, "ids")

    def _fuse(self, now_ms: int) -> Level:
        """Return the producer states of the fullest broker."""
        state = self._shared.admission.state
        capacity = state.in_force.value.fuse
        fullest = state.states.fullest(now_ms)
        count, broker = (0, "") if fullest is None else (fullest.count, f"broker {fullest.node_id}")
        self._fuse_hits += capacity is not None and count >= TRIPS_ABOVE * capacity
        return Level("quotas.fuse", count, capacity, self._fuse_hits, "producer states", broker)
