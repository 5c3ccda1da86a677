"""Ceiling of what a user may bring while nobody decides: as much as a cold start lets pass of it. PURE."""

from __future__ import annotations

from collections import Counter

from pidgate.quota.entities import User, enforces, kept_as, resolve
from pidgate.quota.grace import GRACE_TIMES_RATE
from pidgate.quota.settings import Quotas
from pidgate.quota.state import Question


class FailOpenCeiling:
    """Ids that passed undecided in the present window, by user."""

    def __init__(self) -> None:
        self._window = 0
        self._passed: Counter[User] = Counter()

    def admits(self, quotas: Quotas, question: Question, now_ms: int) -> bool:
        """Return whether the question's ids may pass too, and count them. Without a bound in force all may."""
        user = question.user
        if question.passed or not enforces(quotas, user, transactional=question.transactional):
            return True
        window = now_ms // quotas.producer_ids.window_ms
        if window != self._window:
            self._window = window
            self._passed.clear()
        rates_milli = (resolve(quotas, user).rate_milli, quotas.cluster_rate_milli)
        rate_milli = min(rate for rate in rates_milli if rate is not None)
        name = kept_as(user, self._passed)
        if (self._passed[name] + len(question.ids)) * 1000 > GRACE_TIMES_RATE * rate_milli:
            return False
        self._passed[name] += len(question.ids)
        return True
