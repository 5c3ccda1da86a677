"""Quota of new transactional ids per user (`transactional_ids_rate`): decides at InitProducerId. PURE.

A client that makes up a transactional id at each start takes a producer id with each, and leaves both to the brokers
for days. It is refused before it has anything to send, so no record is lost. Off where no rate is set: nothing is
remembered then.
"""

from __future__ import annotations

from pidgate.quota.decisions import SHORTEST_THROTTLE_MS, Answer, Decision, Question, Reason, new_id_decision
from pidgate.quota.entities import User
from pidgate.quota.layered_filter import Sighting
from pidgate.quota.users import REMEMBER_MS, LiveUser, TransactionalIds, UserTable


class TransactionalIdQuota:
    """Decisions about transactional ids of the users in `table`."""

    def __init__(self, table: UserTable) -> None:
        self._table = table

    def decide(self, question: Question, now_ms: int, *, others_hear: bool) -> Answer:
        """Decide whether the user may begin to use this transactional id. Unknown ones cost a token."""
        live = self._table.live(question.user, now_ms)
        if question.transactional_id is None or live.quota.transactional_ids_rate_milli is None:
            return Answer(False, ())
        known = self._table.transactional_ids(live, now_ms)
        pair = known.filter.hashed(question.transactional_id)
        sighting = known.filter.find(pair, now_ms)
        if sighting is Sighting.CURRENT:
            return Answer(False, ())
        if sighting is Sighting.REMEMBERED:
            decision = _admitted(question, Reason.REFRESH, known, now_ms)
        else:
            decision = self._decide_unseen(question, live, known, now_ms)
        if decision.admitted:
            known.filter.insert(pair, now_ms, floor=live.transactional_floor, others_hear=others_hear)
        return Answer(not decision.admitted, (decision,))

    def _decide_unseen(
        self, question: Question, live: LiveUser, known: TransactionalIds, now_ms: int
    ) -> Decision:
        quota, rate_milli = live.quota, live.quota.transactional_ids_rate_milli
        if quota.exempt:
            return _admitted(question, Reason.EXEMPT, known, now_ms)
        longest_ms = self._table.quotas.producer_ids.max_throttle_ms
        wait_ms = known.bucket.wait_ms(0, now_ms) if rate_milli and known.bucket else longest_ms
        if not quota.enforces:
            decision = _admitted(question, Reason.OBSERVE, known, now_ms)
            decision.would_refuse = wait_ms > 0
            _spend(known, Reason.OBSERVE, now_ms)
        elif rate_milli and self._table.grace.admits(rate_milli, known.grace_admitted, now_ms):
            decision = _admitted(question, Reason.GRACE, known, now_ms)
            known.grace_admitted += 1
        elif wait_ms:
            throttle_ms = min(max(SHORTEST_THROTTLE_MS, wait_ms), longest_ms)
            reason = Reason.FIRST_SEEN if rate_milli else Reason.BLOCKED
            return new_id_decision(question, reason, throttle_ms, _units(known, now_ms), enforced=True)
        else:
            decision = _admitted(question, Reason.FIRST_SEEN, known, now_ms)
            _spend(known, Reason.FIRST_SEEN, now_ms)
        decision.tokens_after = _units(known, now_ms)
        return decision

    def restore(self, user: User, transactional_id: int, used_ms: int, now_ms: int, reason: Reason) -> None:
        """Remember an id that was admitted at `used_ms`, by whatever gateway, and what it cost if it is unseen here.

        Histories come in the order of time.
        """
        used_ms = min(used_ms, now_ms)
        live = self._table.live(user, now_ms)
        if live.quota.transactional_ids_rate_milli is None or used_ms + REMEMBER_MS <= now_ms:
            return
        known = self._table.transactional_ids(live, used_ms)
        pair = known.filter.hashed(transactional_id)
        if known.filter.insert_elsewhere(pair, used_ms, now_ms, floor=live.transactional_floor):
            if reason is Reason.GRACE:
                known.grace_admitted += 1
            _spend(known, reason, used_ms)

    def admitted_meanwhile(self, user: User, transactional_id: int, now_ms: int, reason: Reason) -> None:
        """Take over an id that passed in this process before this state was restored."""
        live = self._table.live(user, now_ms)
        rate_milli = live.quota.transactional_ids_rate_milli
        if live.transactional_ids is None or not rate_milli or reason is not Reason.OBSERVE:
            self.restore(user, transactional_id, now_ms, now_ms, reason)
            return
        graced = live.quota.enforces and self._table.grace.admits(
            rate_milli, live.transactional_ids.grace_admitted, now_ms
        )
        self.restore(user, transactional_id, now_ms, now_ms, Reason.GRACE if graced else reason)


def _admitted(question: Question, reason: Reason, known: TransactionalIds, now_ms: int) -> Decision:
    decision = new_id_decision(question, reason, 0, _units(known, now_ms), enforced=False)
    decision.would_refuse = False
    return decision


def _spend(known: TransactionalIds, reason: Reason, now_ms: int) -> None:
    if known.bucket is None:
        return
    if reason is Reason.FIRST_SEEN:
        known.bucket.charge_elsewhere(
            now_ms
        )  # asked before or charged elsewhere: never more than a full bucket
    elif reason is Reason.OBSERVE:
        known.bucket.charge_floored(now_ms)


def _units(known: TransactionalIds, now_ms: int) -> int | None:
    return None if known.bucket is None else known.bucket.units(now_ms)
