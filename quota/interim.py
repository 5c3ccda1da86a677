"""Interim state while the real one is being restored: everything passes, and is noted for later. PURE.

It answers the same questions as `ProducerIdQuota`, knows no rates, charges nothing, and hands over what it has let
pass once the restored state knows which of it is new.
"""

from __future__ import annotations

from typing import Final, Protocol

from pidgate.quota.entities import User
from pidgate.quota.settings import Quotas
from pidgate.quota.state import Answer, AskedId, Question, decision_of
from pidgate.quota.users import GaveUp, UserStatus
from pidgate.quota.verdicts import Decision, Reason

MOST_INTERIM_IDS = 200_000
"""About 25 MB; what is beyond passes too, and is new again once the state is there."""


class Successor(Protocol):
    """The restored state that takes over what was let pass."""

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool: ...
    def admitted_meanwhile(
        self, user: User, producer_id: int, now_ms: int, reason: Reason, *, transactional: bool = False
    ) -> bool: ...


class InterimState:
    """Ids by user since the start. `not_kept`: how many passed for which there was no room. Alarm."""

    table: Final = None

    def __init__(self) -> None:
        self.not_kept = 0
        self._ids: dict[User, dict[int, Reason]] = {}  # by id, and ~id for one used in transactions
        self._kept = 0
        self._predecessors: dict[tuple[User, int], int] = {}

    def decide(self, question: Question, now_ms: int) -> Answer:
        """Admit everything; ids not asked about before are decided as observed."""
        decisions = (self._observed(question, asked, now_ms) for asked in question.ids)
        return Answer(False, tuple(decision for decision in decisions if decision is not None))

    def _observed(self, question: Question, asked: AskedId, now_ms: int) -> Decision | None:
        key = _key(asked.producer_id, question.transactional)
        if key in self._ids.get(question.user, ()):
            return None
        self._keep(question.user, key, Reason.OBSERVE)
        return decision_of(question, asked, True, Reason.OBSERVE, now_ms)

    def _keep(self, user: User, key: int, reason: Reason) -> bool:
        if key in self._ids.get(user, ()):
            return True
        if self._kept >= MOST_INTERIM_IDS:
            self.not_kept += 1
            return False
        self._ids.setdefault(user, {})[key] = reason
        self._kept += 1
        return True

    def insert_uncharged(
        self, user: User, producer_id: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Admit the id; it will not be charged."""
        key = _key(producer_id, transactional)
        if self._keep(user, key, Reason.FAIL_OPEN):
            self._ids[user][key] = Reason.FAIL_OPEN

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """Return True: the predecessor is looked up, and the id charged or not, when handing over."""
        if self._keep(user, _key(new_producer_id, True), Reason.INHERITED):
            self._predecessors[user, new_producer_id] = old_producer_id
        return True

    def hand_over(self, state: Successor, now_ms: int, at_most: int = MOST_INTERIM_IDS) -> int:
        """Hand up to `at_most` ids to the restored state, in their order; return how many are left.

        Unseen ones are charged as observed: without a debt beyond one token. In portions, as it takes some
        microseconds an id; questions may be answered here in between.
        """
        done = 0
        for user, ids in list(self._ids.items()):
            for key in list(ids):
                if done >= at_most:
                    return self._kept
                self._hand_over_one(state, user, key, ids.pop(key), now_ms)
                self._kept -= 1
                done += 1
            del self._ids[user]
        return self._kept

    def _hand_over_one(self, state: Successor, user: User, key: int, reason: Reason, now_ms: int) -> None:
        transactional = key < 0
        producer_id = ~key if transactional else key
        predecessor = self._predecessors.pop((user, producer_id), None) if transactional else None
        if predecessor is not None and state.inherit(user, predecessor, producer_id, now_ms):
            return
        if reason is Reason.INHERITED:
            reason = Reason.OBSERVE
        state.admitted_meanwhile(user, producer_id, now_ms, reason, transactional=transactional)

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """Nothing here depends on them."""

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Nobody waits."""
        return []

    def users(self) -> list[User]:
        return list(self._ids)

    def status(self, user: User, now_ms: int) -> UserStatus:
        """Only the ids let pass are known."""
        return UserStatus(live_ids=len(self._ids.get(user, ())))


def _key(producer_id: int, transactional: bool) -> int:
    return ~producer_id if transactional else producer_id
