"""From what each rate would have done to the rate that is recommended. Pure; the reasons are in reasons.py.

The rule: of the rates that refuse no healthy id, the least one that leaves headroom and lets all producers that live
restart at once; only headroom, when a rogue would slip through otherwise. It is applied twice: to the days learnt from,
so that the days kept back judge it, and then to all days, which is what is recommended.

A rate is recommended where it does something: it holds the rogue, in all days and in the judged ones, or healthy ids
no longer wait. Where a rogue runs beside healthy producers all the time no rate does; then there is none, but what
would help. Where there is too little to go by there is none either; and where refusals have kept arrivals away, a rate
is raised, but no lower one and no first one is recommended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pidgate.pipeline.recommend.evidence import LONGEST_WAIT_MS, Asked, Counts, Evidence, Need, Tried

A_DAY_MS = 86_400_000
FEWEST_JUDGED = 20
"""Ids of a rogue in the judged days that say something about a rate: of one that was mended a few are left."""


class Action(StrEnum):
    """The recommendation in one word."""

    SET = "set"
    KEEP = "keep"
    NONE = "none"
    """There is nothing to go by, or too little of it; or the user is exempt."""
    NO_RATE = "no_rate"
    """There is a rogue, and no rate separates it from the healthy."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The rule, applied to some days."""

    pick: Tried
    least: Tried
    """The least that refuses no healthy id."""
    holding: Tried | None
    """The least under which healthy ids only wait, while the rogue is held."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome for a user. `fit`: over all days; `judged`: the rate that the days learnt from would have chosen."""

    action: Action
    rate: float | None = None
    """Of SET and KEEP."""
    lacks: str = ""
    """For NONE: what there is too little of: history, time, ids; or arrivals, where refusals have kept some away."""
    fit: Fit | None = None
    judged: Fit | None = None

    def followed(self, user: Evidence) -> Tried:
        """Return what is in force when the recommendation is followed."""
        return self.fit.pick if self.action is Action.SET and self.fit else user.now

    def test(self, user: Evidence) -> Counts | None:
        """Return the judged days under it: of a new rate, by the one that did not know them; None: there is none, since
        nothing came before those days.
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
    # What came shows too small a need: that is enough to raise a rate, and not to lower one or to set the first.
    is_hidden = user.healthy_refusals > 0 and fit.pick.rate < now.rate
    return is_(Action.NONE, "arrivals") if is_hidden else is_(Action.SET)


def separates(fit: Fit, judged: Fit | None) -> bool:
    """Return whether the rogue is held: in all days and, where it was there to be learnt from and has gone on, in the
    judged ones.
    """
    is_judged = judged and judged.pick.train.rogue_ids and judged.pick.test.rogue_ids >= FEWEST_JUDGED
    return bool(fit.pick.whole.holds) and not (is_judged and judged and not judged.pick.test.holds)


def too_little(user: Evidence, asked: Asked) -> str:
    """Return what is missing of the least evidence: history, time, ids; empty: nothing is."""
    if asked.end_ms - asked.begin_ms < asked.least_history_ms:
        return "history"
    if asked.end_ms - user.first_ms < min(A_DAY_MS, asked.least_history_ms):
        return "time"
    return "ids" if user.whole.ids < asked.least_ids else ""


def _is_fine(now: Tried, fit: Fit, need: Need) -> bool:
    """Nothing is touched without a reason."""
    fits_a_restart = now.rate >= min(need.alive, fit.pick.rate)
    return now.whole.healthy_refused == 0 and now.whole.holds is not False and fits_a_restart


def fitted(need: Need, tried: Sequence[Tried], counts: Callable[[Tried], Counts], asked: Asked) -> Fit | None:
    """Apply the rule to some days; None: every rate tried refuses a healthy id."""
    safe = [one for one in tried if counts(one).healthy_refused == 0]
    if not safe:
        return None
    least = safe[0]
    # Who has no healthy producer needs no room for more of them.
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
