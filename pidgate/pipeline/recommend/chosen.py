"""The rule: from a user's need to two rates, a cap for now and one for the mended client. Pure.

The cap is the least rate that refuses no id as it is, with headroom. It never breaks an application, and bounds what
it may still do to the brokers. The rate after mending is for the healthy ids alone, and admits at least a deployment
and its rollback. Without a rogue the two are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Any, Final

from pidgate.pipeline.recommend.trial import rounded_up

A_DAY_MS: Final = 86_400_000
LEAST_INSTANCES: Final = 5
"""Instances assumed of every application: addresses behind a NAT or in one pod do not tell their number."""
DEPLOYMENTS: Final = 2
"""Deployments that fit one window: the new version and its rollback, or both ends of a migration."""
WORKDAYS_OF_A_WEEK: Final = 5 / 7
"""Share of the history's days on which an application that rests at weekends is seen."""
FEWEST_CYCLES: Final = 3
"""Weeks that are enough evidence of a user that is seen once a week."""


class Action(StrEnum):
    """The recommendation as one word."""

    SET = "set"
    KEEP = "keep"
    NONE = "none"
    """Too little evidence, or an exempt user."""


class Lack(StrEnum):
    """Why no rate is recommended."""

    EXEMPT = "exempt"
    IDS = "ids"
    HISTORY = "history"
    DAYS = "days"
    ARRIVALS = "arrivals"
    """Refusals kept arrivals away: enough to raise a rate, not to lower it or to set the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Parameters given by the operator."""

    headroom: float = 1.5
    least_history_ms: int = 7 * A_DAY_MS
    least_ids: int = 20
    after_mending: bool = False
    """Write the rate after mending where there is a rogue, instead of the cap."""
    heap_bytes: int | None = None
    tried: tuple[float, ...] = ()
    """More rates to try for all users."""
    enforce: bool = False
    """Write `mode: enforce` beside new rates."""
    servers: str = ""
    """Bootstrap servers for the file, as typed, comma-separated."""

    @property
    def least_days(self) -> int:
        """Days with data that a user needs."""
        return max(1, ceil(WORKDAYS_OF_A_WEEK * self.least_history_ms / A_DAY_MS))


@dataclass(frozen=True, slots=True)
class Need:
    """What a user needs, of some days."""

    least_rate: float
    """The least that refuses no id."""
    least_healthy_rate: float
    """The least that refuses no healthy id, if those come alone."""
    instances: int
    """Most producers in use at the same time, or addresses of a rogue."""
    growth: float = 1.0
    """Of a usual day's healthy ids against the week before."""

    def rates(self, headroom: float) -> tuple[float, float]:
        """Return the cap and the rate after mending."""
        times = headroom * self.growth
        mended = rounded_up(max(times * self.least_healthy_rate, self.floor))
        return max(rounded_up(times * self.least_rate), mended), mended

    @property
    def floor(self) -> int:
        """New ids of one deployment and its rollback."""
        return DEPLOYMENTS * max(self.instances, LEAST_INSTANCES)


Row = dict[str, Any]
"""A user's measures (measured.py), story (by_user.sql) and quota in force."""


def choose(user: Row, asked: Asked) -> tuple[Action, float | None, Lack | None]:
    """Return the action, its rate, and what is missing for one."""
    current, cap, mended = user["current_rate"], user["cap_rate"], user["mended_rate"]
    if lack := too_little(user, asked):
        return Action.NONE, None, lack
    if current == 0:
        return Action.KEEP, current, None
    rate = mended if asked.after_mending else cap
    if current is not None:
        refuses = user["now"]["refused_healthy_ids"] > 0
        loose = user["rogue_ids"] > 0 and current > rate
        if not refuses and not loose and current >= mended:
            return Action.KEEP, current, None
    if user["healthy_refusals"] and (current is None or rate < current):
        return Action.NONE, None, Lack.ARRIVALS
    return (Action.KEEP if rate == current else Action.SET), rate, None


def too_little(user: Row, asked: Asked) -> Lack | None:
    """Return the missing kind of evidence. Days without data count for nothing."""
    if user["exempt"]:
        return Lack.EXEMPT
    if not user["ids"]:
        return Lack.IDS
    if user["history_ms"] < asked.least_history_ms:
        return Lack.HISTORY
    is_weekly = user["seen_weekly"] and user["days"] >= FEWEST_CYCLES
    if user["days"] < asked.least_days and not is_weekly:
        return Lack.DAYS
    return Lack.IDS if user["ids"] < asked.least_ids else None
