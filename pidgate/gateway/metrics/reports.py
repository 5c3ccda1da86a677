"""Reports of workers and their sum: metrics are of the gateway, not of one of its processes. PURE.

A worker reports its totals, not what was added, so that a lost report loses nothing; of users and buckets those that
changed. What a worker had counted when it ended stays in the sum: totals never fall. One whose connection ended may
come again, and goes on from its totals: so those of the last that ended are kept apart. Byte rates are not added:
workers share their windows, so each of them reports the rate of all.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pidgate.gateway.metrics.counters import NAMES, Counters
from pidgate.quota.byte_quota import IDLE_MS, OTHER_CLIENTS, ByteQuota, ByteSnapshot
from pidgate.quota.byte_rates import Kind, rate_of_bucket
from pidgate.quota.counters import COUNTERS_KEPT_MS, UserSnapshot
from pidgate.quota.entities import MOST_USERS, User
from pidgate.quota.settings import ByteQuotas

LEVELS: Final = ("connections_open", "muted_connections", "buffered_bytes", "tasks")
"""Levels, which end with their process; all other counters are totals."""

SUMMED_FIELDS: Final = (
    "admitted_per_s", "sticky_entries", "would_refuse", "unused_ids", "inits_refused", "inits_would_refuse",
    "inits_failed_open", "waited_ms_sum",
)  # fmt: skip
COUNTED_FIELDS: Final = ("admitted", "refused", "closed", "outcomes", "waited_ms_buckets")
"""Fields of a UserSnapshot that several processes, or users, have in sum."""

REPORT_ROWS: Final = 2_000
"""Buckets in one report, some 200 KB; what has no room is in one of the next."""

REPORT_LATE_MS: Final = 2_000
"""A rate that was not reported again for a window and as long is over."""

MOST_ENDED: Final = 8
"""Workers whose connection has ended, and whose totals are kept apart."""

MOST_REPORTED_USERS: Final = 2 * MOST_USERS
"""More than any worker knows at a time, so that of nobody in use the counts fall."""

_Key = tuple[Kind, str | None, str | None]


@dataclass(frozen=True, slots=True)
class ByteState:
    """Byte buckets, and how often there was no room for one, or none in what workers share.

    `rows` of all buckets are made as they are asked for, once.
    """

    rows: Iterable[ByteSnapshot]
    no_room: int
    not_shared: int


def byte_state_of(quota: ByteQuota, now_ms: int) -> ByteState:
    """Return all buckets of this process."""
    return ByteState(quota.snapshots(now_ms), quota.no_room, quota.not_shared)


def byte_changes_of(quota: ByteQuota, now_ms: int) -> ByteState:
    """Return the buckets that changed since the last call, REPORT_ROWS at most."""
    return ByteState(quota.changes(now_ms, REPORT_ROWS), quota.no_room, quota.not_shared)


NO_BYTES: Final = ByteState([], 0, 0)


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's counts. `failure`: why it has not reached the cluster."""

    counters: Mapping[str, Any]
    users: list[UserSnapshot]
    bytes: ByteState
    is_reached: bool
    failure: str
    is_draining: bool


def report_of(
    counters: Counters,
    users: Iterable[UserSnapshot],
    byte_state: ByteState = NO_BYTES,
    *,
    is_reached: bool,
    failure: str,
    is_draining: bool = False,
) -> Report:
    """Return the report of a worker; `users` and `byte_state` need to hold only what changed."""
    return Report(_by_name(counters), list(users), byte_state, is_reached, failure, is_draining)


class Reports:
    """The latest report of each worker, by its process id, and what ended workers had counted."""

    def __init__(self) -> None:
        self.counters = Counters()
        """The sum, always the same object; brought up to date by `take` and `retire`."""
        self._latest: dict[int, Report] = {}
        self._ended: dict[int, Mapping[str, Any]] = {}
        """Totals of the last workers that ended, by process id."""
        self._kept = Counters()
        """Counts of workers that ended before those, and of the state owner itself."""
        self._users = UserReports()
        self.bytes = ByteReports()

    def take(self, process: int, report: Report, now_ms: int) -> None:
        """Replace the report of this process id."""
        self._latest[process] = report
        self._ended.pop(process, None)
        self._users.take(process, report.users, now_ms)
        self.bytes.take(process, report.bytes, now_ms)
        self._sum()

    def failed_open(self, times: int) -> None:
        """Count requests that the state owner let pass because it could not decide."""
        self._kept.quota_failed_open += times
        self._sum()

    def retire(self, process: int) -> None:
        """The worker has ended: keep its totals, not its levels."""
        report = self._latest.pop(process, None)
        if report is None:
            return
        self.bytes.retire(process)
        self._users.retire(process)
        self._ended[process] = {**report.counters, **dict.fromkeys(LEVELS, 0)}
        if len(self._ended) > MOST_ENDED:
            oldest = next(iter(self._ended))
            _add(self._kept, self._ended.pop(oldest))
            self._users.settle(oldest)
            self.bytes.settle(oldest)
        self._sum()

    @property
    def is_reached(self) -> bool:
        """True when some worker has reached the cluster."""
        return any(report.is_reached for report in self._latest.values())

    @property
    def failure(self) -> str:
        """The reason why no worker has reached the cluster."""
        return next(
            (report.failure for report in self._latest.values()), "no worker process is connected yet"
        )

    def users(
        self, of_state: Callable[[User], UserSnapshot], known: Iterable[User]
    ) -> Iterator[UserSnapshot]:
        """Yield every user that the state or a worker knows; `of_state` gives the state's part of one."""
        for user in dict.fromkeys([*known, *self._users]):
            yield self._users.added_to(of_state(user))

    def _sum(self) -> None:
        fresh = Counters()
        running = (report.counters for report in self._latest.values())
        for counted in (_by_name(self._kept), *self._ended.values(), *running):
            _add(fresh, counted)
        for name in NAMES:
            setattr(self.counters, name, getattr(fresh, name))


def _by_name(counters: Counters) -> dict[str, Any]:
    return {name: getattr(counters, name) for name in NAMES}


def _add(total: Counters, counted: Mapping[str, Any]) -> None:
    for name, value in counted.items():
        if isinstance(value, list):
            mine = getattr(total, name)
            setattr(total, name, [one + more for one, more in zip(mine, value[: len(mine)], strict=True)])
        elif isinstance(value, Mapping):
            getattr(total, name).update(value)
        else:
            setattr(total, name, getattr(total, name) + value)


def _together(one: UserSnapshot, other: UserSnapshot) -> UserSnapshot:
    """Return `one` with what `other` counted added; the quota's fields are those of `one`."""
    fields: dict[str, Any] = {name: getattr(one, name) + getattr(other, name) for name in SUMMED_FIELDS}
    for name in COUNTED_FIELDS:
        fields[name] = Counter(getattr(one, name)) + Counter(getattr(other, name))
    fields["outcomes"] = {key: count + other.outcomes.get(key, 0) for key, count in one.outcomes.items()}
    return replace(one, throttle_time_ms=max(one.throttle_time_ms, other.throttle_time_ms), **fields)


class UserReports:
    """Sum of what all workers counted by user.

    Names come from clients, and over the days there may be any number. A user without a report for COUNTERS_KEPT_MS is
    forgotten, as in its worker; and of more than MOST_REPORTED_USERS those that are silent for longest.
    """

    def __init__(self) -> None:
        self._latest: dict[int, dict[User, UserSnapshot]] = {}
        """By process id."""
        self._ended: dict[int, dict[User, UserSnapshot]] = {}
        """The same, of workers that ended and may come again."""
        self._gone: dict[User, UserSnapshot] = {}
        """Counts of workers that ended before those."""
        self._reported_ms: OrderedDict[User, int] = OrderedDict()
        """The longest silent one first."""

    def __iter__(self) -> Iterator[User]:
        return iter(self._reported_ms)

    def take(self, process: int, users: Iterable[UserSnapshot], now_ms: int) -> None:
        """Replace the snapshots of the users that changed in this process."""
        latest = self._latest.setdefault(process, self._ended.pop(process, {}))
        for user in users:
            latest[user.user] = user
            self._reported_ms[user.user] = now_ms
            self._reported_ms.move_to_end(user.user)
        self._forget(now_ms)

    def retire(self, process: int) -> None:
        """The worker has ended: keep its totals."""
        self._ended[process] = {
            user: replace(snapshot, admitted_per_s=0.0, throttle_time_ms=0.0, sticky_entries=0)
            for user, snapshot in self._latest.pop(process, {}).items()
        }

    def settle(self, process: int) -> None:
        """An ended worker does not come again: add its totals to those of the others."""
        for user, ended in self._ended.pop(process, {}).items():
            before = self._gone.get(user)
            self._gone[user] = ended if before is None else _together(before, ended)

    def added_to(self, snapshot: UserSnapshot) -> UserSnapshot:
        """Return the state's part of a user with what all workers counted."""
        for table in self._tables():
            if snapshot.user in table:
                snapshot = _together(snapshot, table[snapshot.user])
        return snapshot

    def _tables(self) -> list[dict[User, UserSnapshot]]:
        return [*self._latest.values(), *self._ended.values(), self._gone]

    def _forget(self, now_ms: int) -> None:
        reported_ms = self._reported_ms
        while reported_ms:
            user = next(iter(reported_ms))
            is_over = now_ms - reported_ms[user] >= COUNTERS_KEPT_MS
            if not is_over and len(reported_ms) <= MOST_REPORTED_USERS:
                return
            del reported_ms[user]
            for table in self._tables():
                table.pop(user, None)


@dataclass(slots=True)
class _Row:
    """One bucket: each worker's latest snapshot and its time, and the sum of ended workers."""

    parts: dict[int, tuple[ByteSnapshot, int]] = field(default_factory=dict)
    gone: ByteSnapshot | None = None
    last_ms: int = 0


class ByteReports:
    """Sum of the byte buckets of all workers."""

    def __init__(self) -> None:
        self._rows: dict[_Key, _Row] = {}
        self._counts: dict[int, tuple[int, int]] = {}
        self._counts_ended: dict[int, tuple[int, int]] = {}
        self._counts_gone = (0, 0)

    def take(self, process: int, report: ByteState, now_ms: int) -> None:
        """Replace the snapshots of the buckets that changed in this process."""
        self._counts[process] = (report.no_room, report.not_shared)
        self._counts_ended.pop(process, None)
        self._forget(now_ms)
        for part in report.rows:
            row = self._rows.pop((part.kind, part.user, part.client_id), None) or _Row()
            before = row.parts.get(process)
            if before is not None and before[0].total_bytes > part.total_bytes:
                _leave(row, before[0])  # the worker had dropped the bucket and counts from 0 again
            row.parts[process] = (part, now_ms)
            row.last_ms = now_ms
            self._rows[part.kind, part.user, part.client_id] = row  # behind all others

    def retire(self, process: int) -> None:
        """The worker has ended: keep its totals."""
        self._counts_ended[process] = self._counts.pop(process, (0, 0))
        for row in self._rows.values():
            if process in row.parts:
                part, at_ms = row.parts[process]
                row.parts[process] = _ended(part), at_ms

    def settle(self, process: int) -> None:
        """An ended worker does not come again: add its totals to those of the others."""
        mine, gone = self._counts_ended.pop(process, (0, 0)), self._counts_gone
        self._counts_gone = (gone[0] + mine[0], gone[1] + mine[1])
        for row in self._rows.values():
            part = row.parts.pop(process, None)
            if part is not None:
                _leave(row, part[0])

    def state(self, quotas: ByteQuotas, now_ms: int) -> ByteState:
        """Return the sums with the bounds in force now."""
        self._forget(now_ms)
        counts = [*self._counts.values(), *self._counts_ended.values(), self._counts_gone]
        no_room, not_shared = (sum(count[at] for count in counts) for at in (0, 1))
        return ByteState(self._sums(quotas, now_ms), no_room, not_shared)

    def _sums(self, quotas: ByteQuotas, now_ms: int) -> Iterator[ByteSnapshot]:
        fresh_ms = now_ms - quotas.samples * quotas.sample_ms - REPORT_LATE_MS
        for (kind, user, client_id), row in list(self._rows.items()):
            joined = _joined(row, fresh_ms)
            if client_id != OTHER_CLIENTS:
                rate = rate_of_bucket(quotas, kind, (user, client_id))
                if rate is None:
                    continue
                joined = replace(joined, rate_bytes_per_s=rate)
            yield joined

    def _forget(self, now_ms: int) -> None:
        """Drop buckets idle for an hour; the longest idle come first."""
        while self._rows:
            key = next(iter(self._rows))
            if now_ms - self._rows[key].last_ms < IDLE_MS:
                return
            del self._rows[key]


def join(snapshots: list[ByteSnapshot]) -> ByteSnapshot:
    """Return one bucket as several processes see it: totals add up, the rate is that of all already."""
    return replace(
        snapshots[0],
        rate_bytes_per_s=max(one.rate_bytes_per_s for one in snapshots),
        bytes_per_s=max(one.bytes_per_s for one in snapshots),
        throttled=sum(one.throttled for one in snapshots),
        would_throttle=sum(one.would_throttle for one in snapshots),
        throttle_time_ms=max(one.throttle_time_ms for one in snapshots),
        total_bytes=sum(one.total_bytes for one in snapshots),
    )


def _joined(row: _Row, fresh_ms: int) -> ByteSnapshot:
    parts = [part if at_ms >= fresh_ms else _ended(part) for part, at_ms in row.parts.values()]
    return join(parts if row.gone is None else [*parts, row.gone])


def _leave(row: _Row, part: ByteSnapshot) -> None:
    row.gone = _ended(part) if row.gone is None else join([row.gone, _ended(part)])


def _ended(part: ByteSnapshot) -> ByteSnapshot:
    return replace(part, bytes_per_s=0.0, throttle_time_ms=0.0)
