"""The rules that guard what was paid for, each broken in one way; `test_mutants.py` must notice every one.

A mutant is a class of state. It overrides one rule; the code under test has no hooks for it.
"""

from __future__ import annotations

from collections.abc import Callable

from pidgate.quota.decisions import Answer, AskedId, Decision, Question, Reason
from pidgate.quota.entities import User
from pidgate.quota.layered_filter import Sighting
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.restoring import Restorer, UserState
from pidgate.quota.settings import Quotas
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import LiveUser, UserTable


class InsertsWhatIsRefused(ProducerIdQuota):
    """As the KIP's text has it: inserted, then charged."""

    def decide(self, question: Question, now_ms: int) -> Answer:
        answer = super().decide(question, now_ms)
        for asked in question.ids if answer.refused else ():
            self.insert_uncharged(question.user, asked.producer_id, now_ms)
        return answer


class ChargesWhatIsHeld(ProducerIdQuota):
    """Every admission that is heard of is charged."""

    def admitted_meanwhile(
        self, user: User, producer_id: int, now_ms: int, reason: Reason, *, transactional: bool = False
    ) -> bool:
        unseen = super().admitted_meanwhile(user, producer_id, now_ms, reason, transactional=transactional)
        if not unseen:
            self._count_elsewhere(self.table.live(user, now_ms), reason, now_ms)
        return unseen


class ChargesRefreshes(ProducerIdQuota):
    """A refresh elsewhere costs as much as an admission."""

    def _count_elsewhere(
        self, live: LiveUser, reason: Reason, now_ms: int, *, transactional: bool = False
    ) -> None:
        super()._count_elsewhere(live, Reason.FIRST_SEEN, now_ms)


class NeverChargesElsewhere(ProducerIdQuota):
    """What other gateways admit is free here."""

    def _count_elsewhere(
        self, live: LiveUser, reason: Reason, now_ms: int, *, transactional: bool = False
    ) -> None:
        pass


class DebtWithoutFloor(ProducerIdQuota):
    """What is heard late and at once is an outage of hours."""

    def _count_elsewhere(
        self, live: LiveUser, reason: Reason, now_ms: int, *, transactional: bool = False
    ) -> None:
        self.table.charge(live, TokenBucket.charge, now_ms)


class KeepsWaiting(ProducerIdQuota):
    """An id that another gateway has admitted keeps its place in line here."""

    def admitted_meanwhile(
        self, user: User, producer_id: int, now_ms: int, reason: Reason, *, transactional: bool = False
    ) -> bool:
        live = self.table.live(user, now_ms)
        ids = live.ids(transactional=transactional)
        unseen = ids.insert_elsewhere(ids.hashed(producer_id), now_ms, now_ms, floor=live.floor)
        if unseen:
            self._count_elsewhere(live, reason, now_ms)
        return unseen


class _FutureUses(Restorer):
    @staticmethod
    def _possible_ms(used_ms: int, now_ms: int) -> int:
        return used_ms


class FutureUses(ProducerIdQuota):
    """A history from a clock that is ahead is believed."""

    def __init__(self, quotas: Quotas, seed_source: Callable[[], int], now_ms: int) -> None:
        super().__init__(quotas, seed_source, now_ms)
        self.restorer = _FutureUses(self.table)


class _RestoredAsNew(Restorer):
    def restore_id(
        self, user: User, producer_id: int, used_ms: int, now_ms: int, *, transactional: bool = False
    ) -> bool:
        unseen = super().restore_id(user, producer_id, used_ms, now_ms, transactional=transactional)
        self._table.charge(self._table.live(user, now_ms), TokenBucket.charge, used_ms)
        return unseen


class RestoredAsNew(ProducerIdQuota):
    """A restored id is charged."""

    def __init__(self, quotas: Quotas, seed_source: Callable[[], int], now_ms: int) -> None:
        super().__init__(quotas, seed_source, now_ms)
        self.restorer = _RestoredAsNew(self.table)


class _RestoredNow(Restorer):
    def restore_tokens(self, user: User, units: int, token_units: int, at_ms: int) -> None:
        live = self._table.live(user, at_ms)
        super().restore_tokens(user, units, token_units, at_ms)
        if live.bucket is not None:
            live.bucket.restore(units, token_units, at_ms + 1_000)


class RestoredNow(ProducerIdQuota):
    """A balance is taken as if it were of now: what was refilled since is lost."""

    def __init__(self, quotas: Quotas, seed_source: Callable[[], int], now_ms: int) -> None:
        super().__init__(quotas, seed_source, now_ms)
        self.restorer = _RestoredNow(self.table)


class _OldestTokens(Restorer):
    def restore_tokens(self, user: User, units: int, token_units: int, at_ms: int) -> None:
        self._table.live(user, at_ms).restored_ms = None
        super().restore_tokens(user, units, token_units, at_ms)


class OldestTokens(ProducerIdQuota):
    """Whatever balance is told last counts."""

    def __init__(self, quotas: Quotas, seed_source: Callable[[], int], now_ms: int) -> None:
        super().__init__(quotas, seed_source, now_ms)
        self.restorer = _OldestTokens(self.table)


class _ForgetsSeeds(Restorer):
    def import_user(self, state: UserState, now_ms: int) -> None:
        super().import_user(UserState(state.user, state.seed + 1, state.layers, state.bucket), now_ms)


class ForgetsSeeds(ProducerIdQuota):
    """An imported filter is asked with another seed."""

    def __init__(self, quotas: Quotas, seed_source: Callable[[], int], now_ms: int) -> None:
        super().__init__(quotas, seed_source, now_ms)
        self.restorer = _ForgetsSeeds(self.table)


class _SlicesOfOthersAreOurs(UserTable):
    def new(self, user: User, seed: int) -> LiveUser:
        live = super().new(user, seed)
        for ids in live.filters:
            ids._silence_ms = 0
        return live


class SlicesOfOthersAreOurs(ProducerIdQuota):
    """What others tell of is kept no longer than what is used here."""

    def __init__(self, quotas: Quotas, seed_source: Callable[[], int], now_ms: int) -> None:
        super().__init__(quotas, seed_source, now_ms)
        self.table = _SlicesOfOthersAreOurs(quotas, seed_source, now_ms)
        self.restorer = Restorer(self.table)


class GraceIsCharged(ProducerIdQuota):
    """What a cold start lets in is charged all the same."""

    def _admit_unseen(
        self, live: LiveUser, question: Question, asked: AskedId, enforced: bool, now_ms: int
    ) -> Decision:
        decision = super()._admit_unseen(live, question, asked, enforced, now_ms)
        if decision.reason is Reason.GRACE:
            self.table.charge(live, TokenBucket.charge, now_ms)
        return decision


class GraceWithoutBound(ProducerIdQuota):
    """A cold start lets in everything."""

    def _grants_grace(self, live: LiveUser, ahead: int, now_ms: int) -> bool:
        return now_ms < self.table.grace.until_ms


class GraceIsNotRemembered(ProducerIdQuota):
    """What a cold start lets in is new again afterwards."""

    def decide(self, question: Question, now_ms: int) -> Answer:
        live = self.table.live(question.user, now_ms)
        ids = live.ids(transactional=question.transactional)
        known = [ids.find(ids.hashed(asked.producer_id), now_ms) for asked in question.ids]
        answer = super().decide(question, now_ms)
        graced = any(decision.reason is Reason.GRACE for decision in answer.decisions)
        if graced and Sighting.UNSEEN in known:
            ids.clear()
        return answer
