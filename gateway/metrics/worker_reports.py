"""What each worker has counted, and their sum: metrics are of the gateway, not of one of its processes. PURE.

A worker reports its totals, not what was added, so that a lost report loses nothing. What a worker had counted when
it died stays in the sum: totals never fall.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from pidgate.gateway.metrics.counters import NAMES, Counters
from pidgate.quota.counters import UserSnapshot
from pidgate.quota.entities import User

Report = dict[str, Any]

LEVELS: Final = ("connections_open", "muted_connections", "buffered_bytes")
"""What ends with its process; everything else is a total."""


def report_of(counters: Counters, users: Iterable[UserSnapshot], *, is_reached: bool, failure: str) -> Report:
    """All that the holder has to know of a worker, as JSON takes it."""
    return {
        "counters": {name: getattr(counters, name) for name in NAMES},
        "users": [asdict(user) for user in users],
        "is_reached": is_reached,
        "failure": failure,
    }


class Reports:
    """The latest report of each worker, and what those that are gone have left."""

    def __init__(self) -> None:
        self.counters = Counters()
        """The sum, always the same object; brought up to date by `take` and `retire`."""
        self._latest: dict[int, Report] = {}
        self._kept = Counters()
        """What workers that are gone had counted, and the holder itself."""
        self._users: dict[int, dict[User, UserSnapshot]] = {}
        self._users_gone: dict[User, UserSnapshot] = {}

    def take(self, process: int, report: Report) -> None:
        """`process` is the worker's process id. Only users that changed need to be in it."""
        self._latest[process] = report
        users = self._users.setdefault(process, {})
        for fields in report["users"]:
            users[fields["user"]] = _snapshot(fields)
        self._sum()

    def failed_open(self, times: int) -> None:
        """The holder could not decide so often, and let the requests pass."""
        self._kept.quota_failed_open += times
        self._sum()

    def retire(self, process: int) -> None:
        """The worker is gone; its totals are kept, its levels end."""
        report = self._latest.pop(process, None)
        if report is None:
            return
        _add(self._kept, {**report["counters"], **dict.fromkeys(LEVELS, 0)})
        for user, snapshot in self._users.pop(process, {}).items():
            ended = replace(snapshot, admitted_per_s=0.0, throttle_time_ms=0.0, sticky_entries=0)
            before = self._users_gone.get(user)
            self._users_gone[user] = ended if before is None else _together(before, ended)
        self._sum()

    @property
    def is_reached(self) -> bool:
        """Some worker has reached the cluster."""
        return any(report["is_reached"] for report in self._latest.values())

    @property
    def failure(self) -> str:
        """Why none has."""
        return next(
            (report["failure"] for report in self._latest.values()), "no worker process is connected yet"
        )

    def users(self, of_state: Callable[[User], UserSnapshot], known: Iterable[User]) -> list[UserSnapshot]:
        """Every user that the state or a worker knows; `of_state` gives the state's part of one."""
        tables = [*self._users.values(), self._users_gone]
        found = dict.fromkeys([*known, *(user for table in tables for user in table)])
        whole = []
        for user in found:
            snapshot = of_state(user)
            for table in tables:
                if user in table:
                    snapshot = _together(snapshot, table[user])
            whole.append(snapshot)
        return whole

    def _sum(self) -> None:
        fresh = Counters()
        for counted in (
            {name: getattr(self._kept, name) for name in NAMES},
            *(report["counters"] for report in self._latest.values()),
        ):
            _add(fresh, counted)
        for name in NAMES:
            setattr(self.counters, name, getattr(fresh, name))


def _add(total: Counters, counted: Mapping[str, Any]) -> None:
    for name, value in counted.items():
        if name not in NAMES:
            continue  # of a newer version
        if isinstance(value, list):
            mine = getattr(total, name)
            setattr(total, name, [one + more for one, more in zip(mine, value[: len(mine)], strict=True)])
        elif isinstance(value, Mapping):
            getattr(total, name).update(value)
        else:
            setattr(total, name, getattr(total, name) + value)


def _snapshot(fields: Mapping[str, Any]) -> UserSnapshot:
    buckets = {int(bound_ms): count for bound_ms, count in fields["waited_ms_buckets"].items()}
    return UserSnapshot(**{**fields, "waited_ms_buckets": buckets})


def _together(one: UserSnapshot, other: UserSnapshot) -> UserSnapshot:
    """`one`, with what `other` counted added; what the quota says of the user is `one`'s."""
    return replace(
        one,
        admitted_per_s=one.admitted_per_s + other.admitted_per_s,
        throttle_time_ms=max(one.throttle_time_ms, other.throttle_time_ms),
        sticky_entries=one.sticky_entries + other.sticky_entries,
        admitted=Counter(one.admitted) + Counter(other.admitted),
        refused=Counter(one.refused) + Counter(other.refused),
        closed=Counter(one.closed) + Counter(other.closed),
        would_refuse=one.would_refuse + other.would_refuse,
        outcomes={key: one.outcomes.get(key, 0) + other.outcomes.get(key, 0) for key in one.outcomes},
        waited_ms_buckets=Counter(one.waited_ms_buckets) + Counter(other.waited_ms_buckets),
        waited_ms_sum=one.waited_ms_sum + other.waited_ms_sum,
        unused_ids=one.unused_ids + other.unused_ids,
        inits_refused=one.inits_refused + other.inits_refused,
        inits_would_refuse=one.inits_would_refuse + other.inits_would_refuse,
    )
