"""Interim state while the real one is being restored: everything passes, and is noted for later. PURE.

It answers the same questions as `ProducerIdQuota`, knows no rates, charges nothing, and hands over what it has let
pass once the restored state knows which of it is new.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, Protocol

from pidgate.quota.counters import UserStatus
from pidgate.quota.decisions import (
    Answer,
    AskedId,
    Decision,
    GaveUp,
    Question,
    Reason,
    decision_of,
    new_id_decision,
)
from pidgate.quota.entities import User
from pidgate.quota.settings import Quotas

MOST_INTERIM_IDS = 200_000
"""About 25 MB; what is beyond passes too, and is new again once the state is there."""


class Successor(Protocol):
    """The restored state that takes over what was let pass."""

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool: ...
    def admitted_meanwhile(
        self, user: User, producer_id: int, now_ms: int, reason: Reason, *, transactional: bool = False
    ) -> bool: ...
    def transactional_id_meanwhile(self, user: User, hashed: int, now_ms: int, reason: Reason) -> None: ...


class InterimState:
    """Ids by user since the start. `not_noted`: how many passed for which there was no room."""

    table: Final = None

    def __init__(self) -> None:
        self.not_noted = 0
        self._ids: dict[User, dict[int, Reason]] = {}  # by id, and ~id for one used in transactions
        self._names: dict[User, dict[int, Reason]] = {}  # by the hash of a transactional id
        self._kept = 0
        self._predecessors: dict[tuple[User, int], int] = {}

    def decide(self, question: Question, now_ms: int) -> Answer:
        """Admit everything; ids not asked about before are decided as observed."""
        if question.transactional_id is not None:
            return Answer(False, self._observed_name(question, question.transactional_id))
        decisions = (self._observed(question, asked, now_ms) for asked in question.ids)
        return Answer(False, tuple(decision for decision in decisions if decision is not None))

    def _observed(self, question: Question, asked: AskedId, now_ms: int) -> Decision | None:
        key = _key(asked.producer_id, question.transactional)
        if key in self._ids.get(question.user, ()):
            return None
        self._keep(self._ids, question.user, key, Reason.OBSERVE)
        return decision_of(question, asked, True, Reason.OBSERVE, now_ms)

    def _observed_name(self, question: Question, hashed: int) -> tuple[Decision, ...]:
        if hashed in self._names.get(question.user, ()):
            return ()
        self._keep(self._names, question.user, hashed, Reason.OBSERVE)
        decision = new_id_decision(question, Reason.OBSERVE, 0, None, enforced=False)
        decision.would_refuse = False
        return (decision,)

    def _keep(self, table: dict[User, dict[int, Reason]], user: User, key: int, reason: Reason) -> bool:
        if key in table.get(user, ()):
            return True
        if self._kept >= MOST_INTERIM_IDS:
            self.not_noted += 1
            return False
        table.setdefault(user, {})[key] = reason
        self._kept += 1
        return True

    def insert_uncharged(
        self, user: User, producer_id: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Admit the id; it will not be charged."""
        key = _key(producer_id, transactional)
        if self._keep(self._ids, user, key, Reason.FAIL_OPEN):
            self._ids[user][key] = Reason.FAIL_OPEN

    def insert_transactional_id(self, user: User, hashed: int, now_ms: int) -> None:
        """Remember it; it will not be charged."""
        if self._keep(self._names, user, hashed, Reason.FAIL_OPEN):
            self._names[user][hashed] = Reason.FAIL_OPEN

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """Return True: the predecessor is looked up, and the id charged or not, when handing over."""
        if self._keep(self._ids, user, _key(new_producer_id, True), Reason.INHERITED):
            self._predecessors[user, new_producer_id] = old_producer_id
        return True

    @property
    def left(self) -> int:
        """Count of ids noted, and not handed over."""
        return self._kept

    def hand_over(self, state: Successor, now_ms: int, at_most: int = MOST_INTERIM_IDS) -> int:
        """Hand up to `at_most` ids to the restored state, in their order; return how many are left.

        Unseen ones are charged as observed: without a debt beyond one token. In portions, as it takes some
        microseconds an id; questions may be answered here in between.
        """
        done = 0
        for table, hand_over_one in ((self._ids, self._hand_over_one), (self._names, _hand_over_name)):
            # Only as many as one portion may need: a portion of 200 must not cost a list of all 200,000.
            for user, ids in list(islice(table.items(), at_most)):
                for key in list(islice(ids, at_most - done)):
                    reason = ids.pop(key)
                    self._kept -= 1
                    done += 1
                    hand_over_one(state, user, key, reason, now_ms)
                if ids:
                    return self._kept
                del table[user]
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


def _hand_over_name(state: Successor, user: User, hashed: int, reason: Reason, now_ms: int) -> None:
    state.transactional_id_meanwhile(user, hashed, now_ms, reason)


def _key(producer_id: int, transactional: bool) -> int:
    return ~producer_id if transactional else producer_id
