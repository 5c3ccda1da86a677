"""Choice of the recommended rate from the outcomes of all tried rates. Pure; reasons.py explains it.

The rule takes the lowest rate that refuses no healthy id, leaves headroom and lets all live producers restart
at the same time. If a rogue would pass at that rate, headroom alone counts. It is applied twice: to the days
learnt from, so that the held-out days judge it, and to all days for the recommendation.

A rate is recommended only if it has an effect: it holds the rogue, in all days and in the judged ones, or
healthy ids stop waiting. If a rogue runs beside healthy producers all the time, no rate helps, and remedies
are given instead. None is recommended on too little data. If refusals have prevented arrivals, a rate may be
raised, but not lowered or set for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pidgate.pipeline.recommend.evidence import LONGEST_WAIT_MS, Asked, Counts, Evidence, Need, Tried

A_DAY_MS = 86_400_000
FEWEST_JUDGED = 20
"""Fewest rogue ids in the judged days that count; a fixed client still leaves a few."""


class Action(StrEnum):
    """The recommendation as one word."""

    SET = "set"
    KEEP = "keep"
    NONE = "none"
    """Too little data, or an exempt user."""
    NO_RATE = "no_rate"
    """There is a rogue that no rate separates from the healthy ids."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The rule applied to some days."""

    pick: Tried
    least: Tried
    """The lowest that refuses no healthy id."""
    holding: Tried | None
    """The lowest at which healthy ids only wait and the rogue is held."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome for a user. `fit`: over all days; `judged`: the rate chosen from the days learnt from."""

    action: Action
    rate: float | None = None
    """Set for SET and KEEP."""
    lacks: str = ""
    """Missing evidence for NONE: history, time or ids; or arrivals, if refusals have prevented some."""
    fit: Fit | None = None
    judged: Fit | None = None

    def followed(self, user: Evidence) -> Tried:
        """Return the outcome of following the recommendation."""
        return self.fit.pick if self.action is Action.SET and self.fit else user.now

    def test(self, user: Evidence) -> Counts | None:
        """Return the counts of the judged days under it; None without days before them.

        A new rate is judged by the rate that was chosen without those days.
        """
        if self.action is not Action.SET:
            return user.now.test
        return self.judged.pick.test if self.judged else None


def choose(user: Evidence, asked: Asked) -> Choice:
    """Return the recommendation for a user."""
    fit = fitted(user.whole, user.tried, lambda one: one.whole, asked)
    judged = fitted(user.train, user.tried, lambda one: one.train, asked) if user.train.ids else None
    now = user.now

    def is_(action: Action, lacks: str = "") -> Choice:
        set_to = fit.pick.rate if fit else None
        rate = {Action.SET: set_to, Action.KEEP: user.current_rate}.get(action)
        return Choice(action, rate, lacks, fit, judged)

    if user.exempt or not user.whole.ids:
        return is_(Action.NONE)
    if user.current_rate == 0:
        return is_(Action.KEEP)
    if lacks := too_little(user, asked):
        return is_(Action.NONE, lacks)
    if fit is None:
        return is_(Action.NO_RATE if user.whole.rogue_ids else Action.NONE)
    if user.current_rate is not None and _is_fine(now, fit, user.whole):
        return is_(Action.KEEP)
    waits = now.whole.healthy_refused > 0 and fit.pick.rate > now.rate
    if user.whole.rogue_ids and not separates(fit, judged) and not waits:
        return is_(Action.NO_RATE)
    if fit.pick.rate == user.current_rate:
        return is_(Action.KEEP)
    # Refusals hide arrivals, so the need is underestimated: enough to raise a rate, but not to lower one or
    # set the first.
    is_hidden = user.healthy_refusals > 0 and fit.pick.rate < now.rate
    return is_(Action.NONE, "arrivals") if is_hidden else is_(Action.SET)


def separates(fit: Fit, judged: Fit | None) -> bool:
    """Return whether the rogue is held in all days and in the judged ones.

    The judged days count only if the rogue was present both before and during them.
    """
    is_judged = judged and judged.pick.train.rogue_ids and judged.pick.test.rogue_ids >= FEWEST_JUDGED
    return bool(fit.pick.whole.holds) and not (is_judged and judged and not judged.pick.test.holds)


def too_little(user: Evidence, asked: Asked) -> str:
    """Return the missing kind of evidence (history, time, ids), or an empty string."""
    if asked.end_ms - asked.begin_ms < asked.least_history_ms:
        return "history"
    if asked.end_ms - user.first_ms < min(A_DAY_MS, asked.least_history_ms):
        return "time"
    return "ids" if user.whole.ids < asked.least_ids else ""


def _is_fine(now: Tried, fit: Fit, need: Need) -> bool:
    """Return whether the current rate can stay, since changes need a reason."""
    fits_a_restart = now.rate >= min(need.alive, fit.pick.rate)
    return now.whole.healthy_refused == 0 and now.whole.holds is not False and fits_a_restart


def fitted(need: Need, tried: Sequence[Tried], counts: Callable[[Tried], Counts], asked: Asked) -> Fit | None:
    """Apply the rule to some days; None if every tried rate refuses a healthy id."""
    safe = [one for one in tried if counts(one).healthy_refused == 0]
    if not safe:
        return None
    least = safe[0]
    # Without healthy producers no headroom is needed.
    times = asked.headroom if need.healthy_peak else 1.0
    ample = [one for one in safe if one.rate >= times * least.rate]
    restarts = [one for one in ample if one.rate >= need.alive and counts(one).holds is not False]
    pick = next(iter([*restarts, *ample]), safe[-1])
    waits_ms = asked.longest_wait_ms or LONGEST_WAIT_MS
    waiting = (one for one in tried if counts(one).longest_wait_ms <= waits_ms and counts(one).holds)
    holding = next(waiting, None)
    if asked.longest_wait_ms and holding and counts(pick).holds is False:
        pick = holding
    return Fit(pick, least, holding)
