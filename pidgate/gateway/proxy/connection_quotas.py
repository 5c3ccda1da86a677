"""Limits on client connections: in total, of strangers, per user, per address, and per second. PURE.

Connections above a rate are delayed instead of closed, so a fleet that reconnects after a restart gets in. A
connection above a per-user or per-address number is closed. Unless a number is set, each user holds at most as many
connections as it leaves free.

A stranger is a connection that was silent, or has not logged in where a login is required. Strangers together hold a
sixteenth of all connections, and so of connections to brokers and of dials, since each has one at most. At that
share, and where all connections are taken, no more are accepted: arrivals wait in the kernel's queue. The address with
the most strangers loses its oldest one.

The user is known only after the login. Addresses are meaningless behind a NAT, so their limit is off by default.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from pidgate.gateway.metrics.counters import Counters

BURST_MS: Final = 2_000
"""Burst: this much of a rate may come at once."""
USER_BURST_MS: Final = 10_000
LONGEST_DELAY_MS: Final = 10_000
"""Longest delay. Requests time out after 30 s, and a client that reconnects because of the delay would add
load."""
UNDISTURBED_MS: Final = 1_000
"""Time before a connection may be closed for another. Clients send their first request immediately, and a
login takes two or three round trips."""
BROKERS_TURN_MS: Final = 10_000
"""The same while the broker has to answer. After an outage a slow broker takes seconds for a login. Clients closed in
that time would reconnect for ever."""

STRANGERS: Final = 16
"""Strangers hold at most one connection in 16: of 10,000 connections 625, enough for thousands of logins a second."""
LEAST_STRANGERS: Final = 32
"""With few connections in all."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits. None: no limit. `handshakes`: most TLS handshakes in progress.

    `per_user` None: each user leaves as many connections free as it holds. `is_mixed`: only some listeners require a
    login, so ANONYMOUS is limited like a user.
    """

    total: int
    per_s: int
    per_user: int | None
    per_user_per_s: int
    per_address: int | None = None
    handshakes: int = 1 << 30
    is_mixed: bool = False


class Pace:
    """A rate with a burst. It counts first and then returns a delay: arrivals are never refused."""

    __slots__ = ("_burst_ms", "_due_ms", "_step_ms")

    def __init__(self, per_s: int, burst_ms: int) -> None:
        self._step_ms = 1_000 / per_s
        self._burst_ms = burst_ms
        self._due_ms = 0.0

    def count(self, now_ms: int) -> int:
        """Count one arrival; return the delay in ms."""
        self._due_ms = max(self._due_ms, float(now_ms)) + self._step_ms
        return self.delay_ms(now_ms)

    def delay_ms(self, now_ms: int) -> int:
        return max(0, round(self._due_ms - now_ms - self._burst_ms))

    def ahead(self, now_ms: int) -> float:
        """Return how many arrivals have not aged out."""
        return max(0.0, self._due_ms - now_ms) / self._step_ms


class _User:
    __slots__ = ("open", "pace")

    def __init__(self, per_s: int) -> None:
        self.open = 0
        self.pace = Pace(per_s, USER_BURST_MS)


class _Open:
    """One open connection. `since_ms`: of a stranger. `user`, `address` None: unknown."""

    __slots__ = ("address", "awaits_broker", "give_way", "since_ms", "user")

    def __init__(
        self, give_way: Callable[[Any], None], awaits_broker: Callable[[Any], bool], since_ms: int
    ) -> None:
        self.give_way = give_way
        self.awaits_broker = awaits_broker
        self.since_ms = since_ms
        self.user: str | None = None
        self.address: str | None = None


def _broker_is_not_asked(_key: Any) -> bool:
    return False


def network_of(address: str | None) -> str:
    """Return the address; for IPv6 its /64, which one host owns; "" if it is not known yet."""
    if address is None or ":" not in address:
        return address or ""
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return address if parsed.ipv4_mapped else parsed.packed[:8].hex()


class ConnectionQuotas:
    """The gateway's connections by user and by address. A key is any object that represents a connection."""

    def __init__(self, limits: ConnectionLimits, counters: Counters) -> None:
        self.limits = limits
        self._counters = counters
        self._pace = Pace(limits.per_s, BURST_MS)
        self._open: dict[object, _Open] = {}
        self._strangers: dict[str, dict[object, _Open]] = {}
        """Connections that may be closed for others, by network, oldest first."""
        self._strangers_count = 0
        self._shaking: dict[object, tuple[int, Callable[[], None]]] = {}
        """Connections with a TLS handshake in progress, oldest first: its beginning, and a callback that closes."""
        self._users: dict[str, _User] = {}
        self._addresses: Counter[str] = Counter()
        self.busiest_user = ("", 0)
        """The user with the most connections at the last sweep, and their number."""
        self.fastest_user = ("", 0.0)
        """The user furthest ahead of its rate of new connections, and by how many."""
        self.busiest_address = ("", 0)
        """The address with the most connections, where they are counted."""

    # Connections

    def opened(
        self,
        key: object,
        give_way: Callable[[Any], None],
        now_ms: int,
        awaits_broker: Callable[[Any], bool] = _broker_is_not_asked,
    ) -> None:
        """Count an accepted connection. Called with its key: `give_way` closes it; `awaits_broker` returns whether
        the broker has to act.
        """
        self._open[key] = opened = _Open(give_way, awaits_broker, now_ms)
        self._add_stranger(key, opened)
        self._pace.count(now_ms)

    def addressed(self, key: object, address: str) -> bool:
        """Count a connection for its address. False: the address has too many."""
        opened = self._open[key]
        if self._remove_stranger(key):
            opened.address = address
            self._add_stranger(key, opened)
        opened.address = address
        per_address = self.limits.per_address
        if per_address is None:
            return True
        self._addresses[address] += 1
        if self._addresses[address] <= per_address:
            return True
        self._counters.connections_limited["address"] += 1
        return False

    def handshake_begins(self, key: object, give_way: Callable[[], None], now_ms: int) -> None:
        """Count a TLS handshake in progress. `give_way` closes its connection."""
        self._shaking[key] = now_ms, give_way

    def handshake_over(self, key: object) -> None:
        self._shaking.pop(key, None)

    def keeps_its_place(self, key: object, name: str | None) -> bool:
        """Exempt a connection from closing for others: it has a broker and, where required, a login.

        Counts it for its user, unless it is counted or `name` is None. False: the user has too many.
        """
        self._remove_stranger(key)
        opened = self._open.get(key)
        return opened is None or name is None or opened.user is not None or self._count(opened, name)

    def logged_in(self, key: object, name: str, now_ms: int) -> int | None:
        """Count a connection for its user. Returns its delay in ms. None: the user has too many."""
        opened = self._open.get(key)
        if opened is None:  # the client disconnected during the login
            return 0
        self._leave_user(opened)
        if not self._count(opened, name):
            return None
        delay_ms = min(self._users[name].pace.count(now_ms), LONGEST_DELAY_MS)
        if delay_ms:
            self._counters.connections_delayed["user"] += 1
        return delay_ms

    def _count(self, opened: _Open, name: str) -> bool:
        """Count a connection for its user. False: the user has too many."""
        user = self._users.get(name)
        if user is None:
            user = self._users[name] = _User(self.limits.per_user_per_s)
        most = self.limits.per_user
        if most is None:
            most = max(1, self.limits.total - len(self._open))
        if user.open >= most:
            self._counters.connections_limited["user"] += 1
            return False
        user.open += 1
        opened.user = name
        return True

    @property
    def strangers(self) -> int:
        return self._strangers_count

    @property
    def handshakes(self) -> int:
        """Number of TLS handshakes in progress."""
        return len(self._shaking)

    def closed(self, key: object) -> None:
        """Remove a connection."""
        self._remove_stranger(key)
        self._shaking.pop(key, None)
        opened = self._open.pop(key)
        self._leave_user(opened)
        address = opened.address
        if self.limits.per_address is not None and address is not None:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

    def pause_ms(self, now_ms: int) -> int:
        """Return for how long to accept no connection.

        At the total and at the strangers' share, closes strangers.
        """
        delay_ms = self._pace.delay_ms(now_ms)
        most_strangers = max(LEAST_STRANGERS, self.limits.total // STRANGERS)
        if len(self._open) >= self.limits.total or self._strangers_count >= most_strangers:
            self._close_strangers(max(1, min(most_strangers // 8, self.limits.total // 32)), now_ms)
            delay_ms = max(delay_ms, 100)
        if len(self._shaking) >= self.limits.handshakes:
            self._close_handshakes(now_ms)
            delay_ms = max(delay_ms, 100)
        return delay_ms

    def sweep(self, now_ms: int) -> None:
        """Remove users without connections and without a delay; called once a second."""
        idle, busiest, fastest = [], ("", 0), ("", 0.0)
        for name, user in self._users.items():
            if user.open > busiest[1]:
                busiest = name, user.open
            ahead = user.pace.ahead(now_ms)
            if ahead > fastest[1]:
                fastest = name, ahead
            elif not ahead and not user.open:
                idle.append(name)
        for name in idle:
            del self._users[name]
        self.busiest_user, self.fastest_user = busiest, fastest
        self.busiest_address = max(self._addresses.items(), key=itemgetter(1), default=("", 0))

    def _close_strangers(self, most: int, now_ms: int) -> None:
        """Close up to so many strangers, the oldest of the largest networks first."""
        for network in sorted(self._strangers, key=lambda of: len(self._strangers[of]), reverse=True):
            for key, stranger in list(self._strangers[network].items()):
                age_ms = now_ms - stranger.since_ms
                if not most or age_ms < UNDISTURBED_MS:
                    break
                if age_ms < BROKERS_TURN_MS and stranger.awaits_broker(key):
                    continue
                most -= 1
                self._remove_stranger(key)
                self._counters.connections_limited["silent"] += 1
                stranger.give_way(key)

    def _close_handshakes(self, now_ms: int) -> None:
        for key, (since_ms, give_way) in list(self._shaking.items()):
            if now_ms - since_ms < UNDISTURBED_MS:
                return
            del self._shaking[key]
            self._counters.connections_limited["handshake"] += 1
            give_way()

    def _add_stranger(self, key: object, opened: _Open) -> None:
        self._strangers.setdefault(network_of(opened.address), {})[key] = opened
        self._strangers_count += 1

    def _remove_stranger(self, key: object) -> bool:
        """Return whether the connection was a stranger until now."""
        opened = self._open.get(key)
        network = "" if opened is None else network_of(opened.address)
        alike = self._strangers.get(network, {})
        if alike.pop(key, None) is None:
            return False
        self._strangers_count -= 1
        if not alike:
            del self._strangers[network]
        return True

    def _leave_user(self, opened: _Open) -> None:
        if opened.user is not None:
            self._users[opened.user].open -= 1
            opened.user = None
