"""The world shared by all users: days, gateways with clocks and restarts, broker incidents, holidays.

Everything is derived from a few numbers and a seed, so every task computes the same world. Knows no users.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
REMEMBER_MS = DAY_MS
SLICE_MS = 6 * HOUR_MS
"""A gateway's default of remember / layers."""
USAGE_MS = 15 * MINUTE_MS
WINDOW_MS = HOUR_MS


def dice(seed: int, *what: int | str) -> np.random.Generator:
    """Return a random generator for one part of one world, independent of call order."""
    words = [crc32(one.encode()) if isinstance(one, str) else one for one in what]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, *words])))


class Fleet(StrEnum):
    """The kind of users in a world (makers.py)."""

    HABITS = "habits"
    """Each deployment demonstrates one pattern, with numbers from wide distributions."""
    REPORTS = "reports"
    """Each is modelled on a public report of clients that burnt producer ids, or seemed to."""


@dataclass(frozen=True)
class World:
    """`begin_ms`: the first day's midnight, UTC. `scale`: factor on the normal number of processes.

    `shards`: tasks that write a day; a user belongs to one of them.
    """

    seed: int
    users: int
    days: int
    begin_ms: int
    scale: float = 1.0
    shards: int = 1
    gateways: int = 3
    fleet: Fleet = Fleet.HABITS

    @property
    def end_ms(self) -> int:
        return self.begin_ms + self.days * DAY_MS

    def midnight_ms(self, day: int) -> int:
        return self.begin_ms + day * DAY_MS

    def users_of(self, shard: int) -> range:
        return range(shard, self.users, self.shards)

    @cached_property
    def skews_ms(self) -> Times:
        """Offset of each gateway's wall clock from true time, ms: mostly small, large for one."""
        roll = dice(self.seed, "clocks")
        skews = roll.normal(0, 15, self.gateways)
        skews[roll.integers(self.gateways)] += roll.choice((-1, 1)) * roll.uniform(200, 1_800)
        return skews.astype(np.int64)

    @cached_property
    def boots_ms(self) -> Times:
        """Zero of the monotonic clock of each gateway's machine, ms."""
        return self.begin_ms - dice(self.seed, "boots").integers(DAY_MS, 90 * DAY_MS, self.gateways)

    def segments(self, gateway: int, day: int) -> list[tuple[int, int]]:
        """Return begin and end of each of a gateway's processes on that day.

        All restart at midnight, and some once more for an upgrade.
        """
        begin_ms = self.midnight_ms(day)
        roll = dice(self.seed, "restarts", gateway, day)
        if roll.random() > 0.15:
            return [(begin_ms, begin_ms + DAY_MS)]
        restart_ms = begin_ms + int(roll.uniform(0.2, 0.9) * DAY_MS)
        return [(begin_ms, restart_ms), (restart_ms, begin_ms + DAY_MS)]

    @cached_property
    def incidents(self) -> list[tuple[int, int, int]]:
        """Return (begin, end, error code) of broker incidents: elections, full disks, lost replicas."""
        roll = dice(self.seed, "incidents")
        number = 1 + roll.poisson(self.days / 4)
        begins = np.sort(roll.integers(self.begin_ms, self.end_ms, number))
        lengths = (np.exp(roll.normal(np.log(5), 1.0, number)) * MINUTE_MS).astype(np.int64)
        codes = roll.choice((6, 7, 19, 56), number)
        return [
            (int(begin), int(begin + length), int(code))
            for begin, length, code in zip(begins, lengths, codes, strict=True)
        ]

    @cached_property
    def free_days(self) -> NDArray[np.bool_]:
        """Return per day whether it is a weekend or a holiday. 1970 began on a Thursday."""
        weekday = (self.begin_ms // DAY_MS + np.arange(self.days) + 3) % 7
        return (weekday >= 5) | (dice(self.seed, "holidays").random(self.days) < 0.04)
