"""Fail open: verdicts in place of a quota that raised an error, with a ceiling for each user. PURE.

A user must not gain by causing the error: it may bring as many ids as a cold start's grace admits. Further requests are
refused for a second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from pidgate.quota.decisions import NO_PRODUCER_ID, Decision, Forward, Reason, Refuse, refusal_of
from pidgate.quota.entities import User, bound_milli, resolve, table_key
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Quotas
from pidgate.quota.users import GRACE_TIMES_RATE

THROTTLE_MS: Final = 1_000
"""Throttle of a request above the ceiling."""


class FailOpen:
    """Count of the ids that passed undecided in the present window, by user.

    `passed`: requests that passed, and ids that could not be inserted. It should be 0.
    """

    def __init__(self) -> None:
        self.passed = 0
        self._window = 0
        self._admitted: defaultdict[tuple[bool, bool], Counter[User]] = defaultdict(Counter)

    def decide(
        self,
        quotas: Quotas,
        state: ProducerIdQuota,
        decisions: Sequence[Decision],
        now_ms: int,
        transactional_id: int | None = None,
    ) -> Forward | Refuse:
        """Decide as `ProducerIdQuota.decide` would: admit uncharged, refuse above the user's ceiling."""
        # The failed code may have completed some of them.
        decisions = [decision.undecided() for decision in decisions]
        for decision in decisions:
            decision.reason = Reason.FAIL_OPEN
        if not self._admits(quotas, decisions, transactional_id, now_ms):
            for decision in decisions:
                decision.refuse(Reason.FAIL_OPEN, THROTTLE_MS)
            return refusal_of(quotas, decisions, decisions[0].user)
        self.passed += 1
        for decision in decisions:
            try:
                if transactional_id is not None:
                    state.insert_transactional_id(decision.user, transactional_id, now_ms)
                elif decision.producer_id != NO_PRODUCER_ID:
                    state.insert_uncharged(
                        decision.user, decision.producer_id, now_ms, transactional=decision.transactional
                    )
            except Exception:  # noqa: BLE001  (insert when possible)
                self.passed += 1
        return Forward(tuple(decisions))

    def _admits(
        self, quotas: Quotas, decisions: Sequence[Decision], transactional_id: int | None, now_ms: int
    ) -> bool:
        """Return whether this request may pass too, and count it. Without a rate in force every request may."""
        rate_milli = _bound_milli(quotas, decisions[0], transactional_id)
        if rate_milli is None:
            return True
        window = now_ms // quotas.producer_ids.window_ms
        if window != self._window:
            self._window = window
            self._admitted.clear()
        # An id that is given at InitProducerId comes back in a Produce later: each has an account of its own.
        at_init = decisions[0].producer_id == NO_PRODUCER_ID
        admitted = self._admitted[transactional_id is not None, at_init]
        user = table_key(decisions[0].user, admitted)
        after = admitted[user] + len(decisions)
        if after * 1000 > GRACE_TIMES_RATE * rate_milli:
            return False
        admitted[user] = after
        return True


def _bound_milli(quotas: Quotas, decision: Decision, transactional_id: int | None) -> int | None:
    """Return the rate in force for such an id, in thousandths of an id per window; None: no rate limits it."""
    if transactional_id is None:
        return bound_milli(quotas, decision.user, transactional=decision.transactional)
    quota = resolve(quotas, decision.user)
    return quota.transactional_ids_rate_milli if quota.enforces else None
