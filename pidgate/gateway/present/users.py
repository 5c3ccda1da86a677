"""Users as a table shows them: those who are hurt or hurt others first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from pidgate.gateway.present.explaining import Moment
from pidgate.gateway.present.waits import WaitRow
from pidgate.gateway.quotas.administration import InForce
from pidgate.quota.counters import UserCounters
from pidgate.quota.entities import User, owner_of, resolve, shown
from pidgate.quota.settings import Mode

if TYPE_CHECKING:
    from pidgate.gateway.proxy.connection import Shared

USERS_PER_TURN: Final = 100
"""Less than 1 ms."""
NO_LINE: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class UserRow:
    """One user.

    new_1h, refused_1h  new ids, and refused requests, of the last hour; `minutes`: the former by minute, oldest first
    rate                quota in ids per window; None: no limit
    is_run_time         its quota or mode was set at run time
    next_token_ms       until a new id that does not wait is admitted; None: no limit
    bytes_in, bytes_out since the start, of connections after their login
    """

    user: User
    name: str
    mode: str
    exempt: bool
    is_run_time: bool
    rate: float | None
    tokens: float | None
    next_token_ms: int | None
    new_1h: int
    minutes: tuple[int, ...]
    refused_1h: int
    would_refuse: int
    waiting: int
    oldest_waiting_ms: int
    bytes_in: int
    bytes_out: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class UserRows:
    """The first rows of a table. `total`: all users; `matching`: those that the filter finds."""

    rows: list[UserRow]
    total: int
    matching: int
    new_per_s: float
    refused_1h: int


class Users:
    """Collects the rows, in turns with the traffic."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def rows(
        self,
        in_force: InForce,
        moment: Moment,
        waits: Iterable[WaitRow],
        *,
        most: int,
        find: str = "",
        sort: str = "hurt",
    ) -> UserRows:
        """Return the users whose name holds `find`, sorted, and the sums of all users. `waits`: who waits now."""
        admission, now_ms = self._shared.admission, moment.now_ms
        self._shared.turns.count_bytes()
        known = [user for user in admission.state.users() if owner_of(user)[1] is None]
        names = list(dict.fromkeys([*known, *admission.counters.users(), *in_force.quotas.users]))
        keys: list[tuple[tuple[float, ...] | str, User]] = []
        new_per_s, refused = 0.0, 0
        line = _lines(waits, moment.wall_ms)
        changed = _changed(in_force)
        wanted = find.casefold()
        for number, user in enumerate(names, 1):
            if number % USERS_PER_TURN == 0:
                await asyncio.sleep(0)
            row = self._row(user, in_force, changed, line.get(user, NO_LINE), now_ms)
            counters = admission.counters.find(user)
            new_per_s += 0.0 if counters is None else counters.new_ids.per_second(now_ms)
            refused += row.refused_1h
            if wanted in row.name.casefold():
                keys.append((_key(sort, row), user))
        keys.sort(key=itemgetter(0))
        rows = [
            self._row(user, in_force, changed, line.get(user, NO_LINE), now_ms) for _, user in keys[:most]
        ]
        return UserRows(rows, len(names), len(keys), new_per_s, refused)

    def row(self, user: User, in_force: InForce, moment: Moment, waits: Iterable[WaitRow]) -> UserRow:
        line = _lines(waits, moment.wall_ms).get(user, NO_LINE)
        return self._row(user, in_force, _changed(in_force), line, moment.now_ms)

    def _row(
        self, user: User, in_force: InForce, changed: set[User | None], line: tuple[int, int], now_ms: int
    ) -> UserRow:
        admission = self._shared.admission
        state, counters = admission.state, admission.counters.find(user)
        table = state.table if state.is_restored else None
        live = table.find(user) if table is not None else None
        quota = resolve(in_force.quotas, user)
        bucket = None if live is None else live.active_bucket
        in_line = 0 if live is None else len(live.queue.waiting)
        waiting, oldest_ms = line
        minutes = [] if counters is None else counters.new_by_minute.of_hour(now_ms)
        refused = [] if counters is None else counters.refused_by_minute.of_hour(now_ms)
        return UserRow(
            user=user,
            name=shown(user),
            mode=str(quota.mode),
            exempt=quota.exempt,
            is_run_time=user in changed,
            rate=None if quota.rate_milli is None else quota.rate_milli / 1_000,
            tokens=None if bucket is None else round(bucket.units(now_ms) / bucket.token_units, 2),
            next_token_ms=None if bucket is None else bucket.wait_ms(in_line, now_ms),
            new_1h=sum(minutes),
            minutes=tuple(minutes),
            refused_1h=sum(refused),
            would_refuse=0 if counters is None else counters.would_refuse,
            waiting=waiting,
            oldest_waiting_ms=oldest_ms,
            bytes_in=0 if counters is None else counters.bytes_in,
            bytes_out=0 if counters is None else counters.bytes_out,
            last_ms=_last_ms(counters, now_ms),
        )


def _changed(in_force: InForce) -> set[User | None]:
    return {change.target.user for change in in_force.changes}


def _lines(waits: Iterable[WaitRow], wall_ms: int) -> dict[User, tuple[int, int]]:
    """Return how many clients of each user wait, and the longest wait."""
    lines: dict[User, tuple[int, int]] = {}
    for row in waits:
        waiting, oldest_ms = lines.get(row.user, NO_LINE)
        lines[row.user] = waiting + 1, max(oldest_ms, wall_ms - row.since_wall_ms)
    return lines


def _last_ms(counters: UserCounters | None, now_ms: int) -> int:
    return -1 if counters is None or not counters.last_ms else now_ms - counters.last_ms


def _key(sort: str, row: UserRow) -> tuple[float, ...] | str:
    if sort == "user":
        return row.name.casefold()
    if sort == "tokens":
        return (float("inf") if row.tokens is None else row.tokens,)
    by = {
        "new": row.new_1h,
        "waiting": row.oldest_waiting_ms,
        "refused": row.refused_1h,
        "bytes": row.bytes_in + row.bytes_out,
    }
    if sort in by:
        return (-by[sort],)
    hurts = row.would_refuse if row.mode == Mode.OBSERVE else 0
    return -row.oldest_waiting_ms, -row.refused_1h, -hurts, -row.new_1h, -row.bytes_in - row.bytes_out
