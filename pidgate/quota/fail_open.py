"""Answers in place of a state that gives none: who passes undecided, and how much of it. PURE.

The one place where anything fails open, whatever the trouble is: a state owner that is gone, or an error in the
quota's own code. Whoever can cause the trouble is not to profit, so a user brings what a cold start's grace would let
pass at most; the rest is refused for a moment.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from pidgate.quota.entities import User, kept_as, may_refuse, refuses_at_init, resolve
from pidgate.quota.grace import GRACE_TIMES_RATE
from pidgate.quota.settings import Quotas
from pidgate.quota.state import Answer, Question, QuotaState, busy, failed_open


class FailOpen:
    """Account of what passed undecided in the present window, by user.

    `processes`: of the gateway, each of which gives a user its part of the ceiling. `passed`: requests that passed,
    and ids of them that could not even be inserted. Alarm.
    """

    def __init__(self) -> None:
        self.processes = 1
        self.passed = 0
        self._window = 0
        self._admitted: defaultdict[tuple[bool, bool], Counter[User]] = defaultdict(Counter)

    def answer(self, quotas: Quotas, state: QuotaState, question: Question, now_ms: int) -> Answer:
        """Admit what is asked about, uncharged; above the user's ceiling refuse it."""
        if not self._admits(quotas, question, now_ms):
            return busy(question, now_ms)
        answer, failures = failed_open(state, question, now_ms)
        self.passed += 1 + failures
        return answer

    def _admits(self, quotas: Quotas, question: Question, now_ms: int) -> bool:
        """Return whether this may pass too, and count it. Without a bound in force all may."""
        rate_milli = None if question.passed else bound_milli(quotas, question)
        if rate_milli is None:
            return True
        window = now_ms // quotas.producer_ids.window_ms
        if window != self._window:
            self._window = window
            self._admitted.clear()
        # What is asked for at InitProducerId is brought by a Produce later: each has an account of its own.
        admitted = self._admitted[question.transactional_id is not None, not question.ids]
        user = kept_as(question.user, admitted)
        after = admitted[user] + max(1, len(question.ids))
        if after * 1000 * self.processes > GRACE_TIMES_RATE * rate_milli:
            return False
        admitted[user] = after
        return True


def bound_milli(quotas: Quotas, question: Question) -> int | None:
    """Return the rate that a question's user is held to, in thousandths of an id per window; None: none in force."""
    quota = resolve(quotas, question.user)
    if question.transactional_id is not None:
        is_held = refuses_at_init(quotas, question.user, transactional=True)
        return quota.transactional_ids_rate_milli if is_held else None
    if not may_refuse(quotas, quota, transactional=question.transactional):
        return None
    rates_milli = (quota.rate_milli, quotas.cluster_rate_milli)
    return min(rate for rate in rates_milli if rate is not None)
