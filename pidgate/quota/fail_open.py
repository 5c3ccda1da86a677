"""Fail open: answers in place of a state that raises an error, with a ceiling for each user. PURE.

A user must not gain by causing the error: it may bring as many ids as a cold start's grace admits. Further requests are
refused for a second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from pidgate.quota.decisions import Answer, Question, Reason, decision_of, new_id_decision
from pidgate.quota.entities import User, kept_as, may_refuse, refuses_at_init, resolve
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Quotas
from pidgate.quota.users import GRACE_TIMES_RATE

THROTTLE_MS: Final = 1_000
"""Of a request that is refused above the ceiling."""


class FailOpen:
    """Count of the ids that passed undecided in the present window, by user.

    `passed`: requests that passed, and their ids that could not even be inserted. Alarm.
    """

    def __init__(self) -> None:
        self.passed = 0
        self._window = 0
        self._admitted: defaultdict[tuple[bool, bool], Counter[User]] = defaultdict(Counter)

    def answer(self, quotas: Quotas, state: ProducerIdQuota, question: Question, now_ms: int) -> Answer:
        """Admit the ids of the question uncharged; above the user's ceiling refuse them."""
        if not self._admits(quotas, question, now_ms):
            return _refused(question, now_ms)
        self.passed += 1
        for asked in question.ids:
            try:
                state.insert_uncharged(
                    question.user, asked.producer_id, now_ms, transactional=question.transactional
                )
            except Exception:  # noqa: BLE001  (insert when possible)
                self.passed += 1
        if question.transactional_id is not None:
            try:
                state.insert_transactional_id(question.user, question.transactional_id, now_ms)
            except Exception:  # noqa: BLE001  (insert when possible)
                self.passed += 1
        if not question.ids:
            decision = new_id_decision(question, Reason.FAIL_OPEN, 0, None, enforced=False)
            decision.would_refuse = False
            return Answer(False, (decision,))
        decisions = (decision_of(question, asked, True, Reason.FAIL_OPEN, now_ms) for asked in question.ids)
        return Answer(False, tuple(decisions))

    def _admits(self, quotas: Quotas, question: Question, now_ms: int) -> bool:
        """Return whether this may pass too, and count it. Without a rate in force everything may."""
        rate_milli = bound_milli(quotas, question)
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
        if after * 1000 > GRACE_TIMES_RATE * rate_milli:
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


def _refused(question: Question, now_ms: int) -> Answer:
    decisions = [decision_of(question, asked, False, Reason.FAIL_OPEN, now_ms) for asked in question.ids]
    for decision in decisions:
        decision.throttle_time_ms = THROTTLE_MS
    if not decisions:
        decisions = [new_id_decision(question, Reason.FAIL_OPEN, THROTTLE_MS, None, enforced=True)]
    return Answer(True, tuple(decisions))
