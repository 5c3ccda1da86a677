"""Limits on client connections: in total, per user, per address, and per second. PURE.

Connections above a rate are delayed instead of closed, so a fleet that reconnects after a restart gets in. A
connection above a per-user or per-address number is closed. At the total no more are accepted, and the oldest
connection without a claim to its place is closed: one that was silent, or has not logged in where a login is
required. The user is known only after the login. Addresses are meaningless behind a NAT, so their limit is
off by default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits. None: no limit. `handshakes`: most TLS handshakes in progress."""

    total: int
    per_s: int
    per_user: int
    per_user_per_s: int
    per_address: int | None = None
    handshakes: int = 1 << 30


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

    def is_over(self, now_ms: int) -> bool:
        """Return whether all counted arrivals have aged out."""
        return self._due_ms <= now_ms


class _User:
    __slots__ = ("open", "pace")

    def __init__(self, per_s: int) -> None:
        self.open = 0
        self.pace = Pace(per_s, USER_BURST_MS)


class ConnectionQuotas:
    """The gateway's connections by user and by address. A key is any object that represents a connection."""

    def __init__(self, limits: ConnectionLimits, counters: Counters) -> None:
        self.limits = limits
        self._counters = counters
        self._pace = Pace(limits.per_s, BURST_MS)
        self._open: dict[object, str | None] = {}
        """User of each connection. None: unknown."""
        self._yielding: dict[object, tuple[int, Callable[[], None]]] = {}
        """Connections that may be closed for others, oldest first: their age and the callback that closes
        them."""
        self._shaking: dict[object, tuple[int, Callable[[], None]]] = {}
        """The same for connections with a TLS handshake in progress."""
        self._users: dict[str, _User] = {}
        self._addresses: Counter[str] = Counter()

    # Connections

    def opened(self, key: object, give_way: Callable[[], None], now_ms: int) -> None:
        """Count an accepted connection. `give_way` closes it."""
        self._open[key] = None
        self._yielding[key] = now_ms, give_way
        self._pace.count(now_ms)

    def addressed(self, address: str) -> bool:
        """Count a connection for its address. False: the address has too many."""
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

    def keeps_its_place(self, key: object) -> None:
        """Exempt a connection from closing for others: it has a broker and, where required, a login."""
        self._yielding.pop(key, None)

    def logged_in(self, key: object, name: str, now_ms: int) -> int | None:
        """Count a connection for its user. Returns its delay in ms. None: the user has too many."""
        if key not in self._open:  # the client disconnected during the login
            return 0
        self._leave_user(key)
        user = self._users.get(name)
        if user is None:
            user = self._users[name] = _User(self.limits.per_user_per_s)
        if user.open >= self.limits.per_user:
            self._counters.connections_limited["user"] += 1
            return None
        user.open += 1
        self._open[key] = name
        delay_ms = min(user.pace.count(now_ms), LONGEST_DELAY_MS)
        if delay_ms:
            self._counters.connections_delayed["user"] += 1
        return delay_ms

    def closed(self, key: object, address: str | None) -> None:
        """Remove a connection. `address` None: it was counted for no address."""
        self._yielding.pop(key, None)
        self._shaking.pop(key, None)
        self._leave_user(key)
        del self._open[key]
        if self.limits.per_address is not None and address is not None:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

    def pause_ms(self, now_ms: int) -> int:
        """Return for how long to accept no connection.

        At the total, closes a connection that may be closed for others.
        """
        delay_ms = self._pace.delay_ms(now_ms)
        if len(self._open) >= self.limits.total:
            self._close_oldest(self._yielding, max(1, self.limits.total // 100), "silent", now_ms)
            delay_ms = max(delay_ms, 100)
        if len(self._shaking) >= self.limits.handshakes:
            self._close_oldest(self._shaking, len(self._shaking), "handshake", now_ms)
            delay_ms = max(delay_ms, 100)
        return delay_ms

    def sweep(self, now_ms: int) -> None:
        """Remove users without connections and without a delay; called once a second."""
        for name in [
            name for name, user in self._users.items() if not user.open and user.pace.is_over(now_ms)
        ]:
            del self._users[name]

    def _close_oldest(
        self, waiting: dict[object, tuple[int, Callable[[], None]]], most: int, kind: str, now_ms: int
    ) -> None:
        for key, (since_ms, give_way) in list(waiting.items())[:most]:
            if now_ms - since_ms < UNDISTURBED_MS:
                return
            del waiting[key]
            self._counters.connections_limited[kind] += 1
            give_way()

    def _leave_user(self, key: object) -> None:
        name = self._open[key]
        if name is not None:
            self._users[name].open -= 1
            self._open[key] = None
