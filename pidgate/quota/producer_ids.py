"""Quota of new producer ids per user (KIP-936): decides from filters, buckets and queues. PURE.

Must not know connections or sticky refusals: Admission looks at those first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pidgate.quota.changes import Command, CommandType
from pidgate.quota.counters import Refusal, UserStatus
from pidgate.quota.decisions import (
    NO_PRODUCER_ID,
    SHORTEST_THROTTLE_MS,
    Answer,
    AskedId,
    Bound,
    Decision,
    GaveUp,
    Question,
    Reason,
    decision_of,
    new_id_decision,
)
from pidgate.quota.entities import User, is_bounded
from pidgate.quota.layered_filter import HashPair, LayeredFilter, Sighting
from pidgate.quota.restoring import MOST_NOTED_IDS, NotedIds, Restorer
from pidgate.quota.settings import Quotas, QuotasHolder
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.transactional_ids import TransactionalIdQuota
from pidgate.quota.users import LiveUser, UserTable


@dataclass(slots=True)
class _Refusal:
    reason: Reason
    throttle_time_ms: int
    queue_position: int | None = None
    bound: Bound = Bound.USER


GENERATION_STEP: Final = 1 << 48
"""Beyond the number of any slice, so that a connection's cache entry of an earlier generation never matches."""


class ProducerIdQuota:
    """Decisions about new producer ids. `table` holds the users, and `restorer` fills it.

    While the state is being restored (`is_restored` False), every id passes and is noted in `noted`: charging it would
    need the history that is still being read. `hand_over` charges the noted ids against the restored users, and
    `end_restoring` begins to decide.

    in_force     the quotas in force, for all who read them
    in_fleet     other gateways follow this one's decisions. Layers then live for a slice longer, since other gateways
                 use an id without a further event until their slice ends
    generation   changes when the caches of connections become invalid: after a change of quotas, and once restored
    former_name  returns the name under which a user's state was stored before the user was seen, if there is one. With
                 redacted users this is the hash in events
    """

    def __init__(
        self,
        quotas: Quotas,
        seed_source: Callable[[], int],
        now_ms: int,
        *,
        is_restored: bool = True,
        former_name: Callable[[User], User | None] | None = None,
    ) -> None:
        self.in_force = QuotasHolder(quotas)
        self.table = UserTable(quotas, seed_source, now_ms)
        self.transactional_ids = TransactionalIdQuota(self.table)
        self.restorer = Restorer(self.table)
        self.is_restored = is_restored
        self.noted = NotedIds()
        self.in_fleet = False
        self.generation = 0
        self._former_name = former_name

    def begin_grace(self, until_ms: int) -> None:
        """Admit unseen ids uncharged until then, of each user at most 10 times its rate.

        What was restored as let in by a grace counts: by this one before a restart, or by other gateways that begin
        theirs at this moment.
        """
        self.table.grace.until_ms = until_ms

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """Put the quotas in force, and apply them to every user: a balance keeps its fraction as of this moment."""
        self.in_force.replace(quotas)
        self.table.set_quotas(quotas, now_ms)
        self.generation += GENERATION_STEP
        for user in quotas.users if self._former_name is not None else ():
            self._move_former_state(user, now_ms)

    def _move_former_state(self, user: User, now_ms: int) -> None:
        """Give the user the state that is stored under its former name."""
        name = None if self._former_name is None else self._former_name(user)
        if name is not None:
            self.table.rename(name, user, now_ms)

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Drop users without any state; return the ids that gave up since the last sweep."""
        return self.table.sweep(now_ms) if self.is_restored else []

    def users(self) -> list[User]:
        """Return the known users; while the state is being restored, those of the noted ids."""
        return self.table.users() if self.is_restored else self.noted.users()

    def status(self, user: User, now_ms: int) -> UserStatus:
        """Return the user's tokens, queue and remembered ids; while being restored, only the number of noted ids."""
        return (
            self.table.status(user, now_ms)
            if self.is_restored
            else UserStatus(live_ids=self.noted.count_ids(user))
        )

    # Restoring

    def _pass_and_note(self, question: Question, now_ms: int) -> Answer:
        """Admit everything. Ids without a note are decided as observed."""
        user, transactional = question.user, question.transactional
        if question.transactional_id is not None:
            if not self.noted.note_transactional_id(user, question.transactional_id, Reason.OBSERVE):
                return Answer(False, ())
            decision = new_id_decision(question, Reason.OBSERVE, 0, None, enforced=False)
            decision.would_refuse = False
            return Answer(False, (decision,))
        return Answer(
            False,
            tuple(
                decision_of(question, asked, True, Reason.OBSERVE, now_ms)
                for asked in question.ids
                if self.noted.note_id(user, asked.producer_id, Reason.OBSERVE, transactional=transactional)
            ),
        )

    def hand_over(self, now_ms: int, at_most: int = MOST_NOTED_IDS) -> int:
        """Take up to so many noted ids over into the users; return how many are left.

        An unseen id is charged as observed: without a debt beyond one token. In portions, since an id takes some
        microseconds; questions may be decided in between.
        """
        before = self.noted.left
        for user, key, reason in self.noted.take_out_ids(at_most):
            self._hand_over_id(user, key, reason, now_ms)
        for user, hashed, reason in self.noted.take_out_transactional_ids(
            at_most - (before - self.noted.left)
        ):
            self._move_former_state(user, now_ms)
            self.transactional_ids.admitted_meanwhile(user, hashed, now_ms, reason)
        return self.noted.left

    def _hand_over_id(self, user: User, key: int, reason: Reason, now_ms: int) -> None:
        self._move_former_state(user, now_ms)
        transactional = key < 0
        producer_id = ~key if transactional else key
        predecessor = self.noted.take_out_predecessor(user, producer_id) if transactional else None
        if predecessor is not None and self._inherit(user, predecessor, producer_id, now_ms):
            return
        if reason is Reason.INHERITED:
            reason = Reason.OBSERVE
        self.admitted_meanwhile(user, producer_id, now_ms, reason, transactional=transactional)

    def end_restoring(self) -> None:
        """Decide from now on. Ids in the caches of connections are looked up again."""
        self.is_restored = True
        self.generation += GENERATION_STEP

    # Deciding

    def decide(self, question: Question, now_ms: int) -> Answer:
        """Decide about a question. All ids are looked at before any is charged: a request passes as a whole or not at
        all.
        """
        if self._former_name is not None:
            self._move_former_state(question.user, now_ms)
        if not self.is_restored:
            return self._pass_and_note(question, now_ms)
        if question.transactional_id is not None:
            return self.transactional_ids.decide(question, now_ms, others_hear=self.in_fleet)
        if not question.ids:
            return self._decide_new_id(question, now_ms)
        live = self.table.live(question.user, now_ms)
        self.table.drop_given_up(question.user, live, now_ms)
        enforced = live.refuses_transactional if question.transactional else live.refuses_plain
        ids = live.ids(transactional=question.transactional)
        sighted = [self._sighted(ids, asked, now_ms) for asked in question.ids]
        refusals: list[Decision] = []
        bound, longest_ms, unseen, in_grace = Bound.USER, 0, 0, 0
        for asked, (_, sighting) in zip(question.ids, sighted, strict=True):
            if sighting is not Sighting.UNSEEN or not enforced:
                continue
            if self._grants_grace(live, in_grace, now_ms):
                in_grace += 1
                continue
            refusal = self._refusal(live, question, asked, unseen, now_ms)
            unseen += 1
            if refusal is not None:
                refusals.append(self._refused(live, question, asked, refusal, now_ms))
                if refusal.throttle_time_ms > longest_ms:
                    bound, longest_ms = refusal.bound, refusal.throttle_time_ms
        if refusals:
            return Answer(True, tuple(refusals), bound)
        admitted = (
            self._admit(live, question, asked, seen, enforced, now_ms)
            for asked, seen in zip(question.ids, sighted, strict=True)
        )
        return Answer(False, tuple(decision for decision in admitted if decision is not None))

    def _decide_new_id(self, question: Question, now_ms: int) -> Answer:
        """Decide whether a broker may give the user one more id. Nothing is charged before the id is used."""
        live = self.table.live(question.user, now_ms)
        self.table.drop_given_up(question.user, live, now_ms)
        enforced = live.refuses_plain
        refusal = None if live.quota.exempt else self._new_id_refusal(live, now_ms, enforced=enforced)
        if refusal is None:
            return Answer(False, ())
        if enforced:
            self._note_refusal(question.user, live, NO_PRODUCER_ID, refusal, now_ms)
        decision = new_id_decision(
            question, refusal.reason, refusal.throttle_time_ms, live.units(now_ms), enforced=enforced
        )
        return Answer(enforced, (decision,), refusal.bound)

    def _new_id_refusal(self, live: LiveUser, now_ms: int, *, enforced: bool) -> _Refusal | None:
        """Return why the user may be given no id now; None notes that one is given.

        A token that is not below zero is needed, beside those for ids given a moment ago: otherwise all who wait for
        one token were given an id when it is back. An id that waits already is served first, having data to lose: the
        throttle is that of a place behind the queue. The new one does not have to wait for the queue.
        """
        blocked = self._blocked(live)
        if blocked is not None:
            return blocked
        if self._grants_grace(live, 0, now_ms):
            return None
        given = live.given_lately(now_ms)
        if self._wait_ms(live, given, now_ms, enforced=enforced)[0] == 0:
            live.given.append(now_ms)
            return None
        wait_ms, bound = self._wait_ms(live, given + len(live.queue), now_ms, enforced=enforced)
        return _Refusal(Reason.FIRST_SEEN, self._throttle_ms(wait_ms), bound=bound)

    def apply(self, command: Command, now_ms: int) -> None:
        """Apply an operator's command, also while the state is being restored.

        A released id is admitted when it comes back, as if it were remembered: uncharged, and published as a refresh.
        Refilling an unknown user does nothing: it has all of its tokens.
        """
        self._move_former_state(command.user, now_ms)
        if command.type is CommandType.RELEASE:
            self.table.refusals.release(command.user, command.producer_id)
            return
        live = self.table.find(command.user)
        if live is not None and live.bucket is not None:
            live.bucket.fill(now_ms)
            live.is_changed = True

    def insert_uncharged(
        self, user: User, producer_id: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Admit the id for that use without spending a token."""
        self._move_former_state(user, now_ms)
        if self.is_restored:
            self._insert(user, producer_id, now_ms, transactional)
        else:
            self.noted.note_id(user, producer_id, Reason.FAIL_OPEN, transactional=transactional)

    def _insert(self, user: User, producer_id: int, now_ms: int, transactional: bool) -> None:
        live = self.table.live(user, now_ms)
        ids = live.ids(transactional=transactional)
        ids.insert(ids.hashed(producer_id), now_ms, floor=live.floor, others_hear=self.in_fleet)
        self.table.refusals.admitted(user, producer_id)
        if producer_id in live.queue:
            live.queue.served(producer_id)

    def insert_transactional_id(self, user: User, hashed: int, now_ms: int) -> None:
        """Remember a transactional id, by 64 bits of its hash, without spending a token."""
        self._move_former_state(user, now_ms)
        if self.is_restored:
            self.transactional_ids.restore(user, hashed, now_ms, now_ms, Reason.FAIL_OPEN)
        else:
            self.noted.note_transactional_id(user, hashed, Reason.FAIL_OPEN)

    def admitted_elsewhere(
        self, user: User, producer_id: int, now_ms: int, reason: Reason, *, transactional: bool = False
    ) -> bool:
        """Take over an id admitted or refreshed by another gateway for `reason`; return whether it was unseen here.

        Only then it is charged: one producer that writes to three brokers at once, each behind its own gateway, is one
        id, and costs one token in each gateway's account.
        """
        self.in_fleet = True
        return self.admitted_meanwhile(user, producer_id, now_ms, reason, transactional=transactional)

    def admitted_meanwhile(
        self, user: User, producer_id: int, now_ms: int, reason: Reason, *, transactional: bool = False
    ) -> bool:
        """Take over an id let pass in this process before this state was restored; return whether it was unseen."""
        live = self.table.live(user, now_ms)
        ids = live.ids(transactional=transactional)
        unseen = ids.insert_elsewhere(ids.hashed(producer_id), now_ms, now_ms, floor=live.floor)
        if unseen:
            self._count_elsewhere(live, reason, now_ms, transactional=transactional)
        self.table.refusals.admitted(user, producer_id)
        if producer_id in live.queue:
            live.queue.served(producer_id)
        return unseen

    def _count_elsewhere(
        self, live: LiveUser, reason: Reason, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Charge what was charged there; what was admitted as grace there counts as grace here."""
        # What passes while a state is being restored counts as observed; under grace it would have been granted.
        enforced = live.refuses_transactional if transactional else live.refuses_plain
        graced = reason is Reason.OBSERVE and enforced and self._grants_grace(live, 0, now_ms)
        if graced or reason is Reason.GRACE:
            live.grace_admitted += 1
        elif live.quota.exempt:
            return
        elif reason in (Reason.FIRST_SEEN, Reason.QUEUE):
            self.table.charge(live, TokenBucket.charge_elsewhere, now_ms)
        elif reason is Reason.OBSERVE:
            self._charge_unrefused(live, now_ms, enforced=enforced)

    def _charge_unrefused(self, live: LiveUser, now_ms: int, *, enforced: bool) -> None:
        """Charge an id that was let in although there may have been no token; `enforced`: its like is refused here."""
        if enforced:
            self.table.charge(live, TokenBucket.charge_floored, now_ms)
        else:
            self.table.charge_observed(live, now_ms)

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """Admit the new id of a transaction uncharged; return False when the old one is not remembered as such.

        While the state is being restored, return True: the predecessor is looked up when the id is handed over.
        """
        self._move_former_state(user, now_ms)
        if self.is_restored:
            return self._inherit(user, old_producer_id, new_producer_id, now_ms)
        self.noted.note_inherited(user, old_producer_id, new_producer_id)
        return True

    def _inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        if not self.table.remembers(user, old_producer_id, now_ms, transactional=True):
            return False
        self._insert(user, new_producer_id, now_ms, transactional=True)
        return True

    @staticmethod
    def _sighted(ids: LayeredFilter, asked: AskedId, now_ms: int) -> tuple[HashPair, Sighting]:
        pair = ids.hashed(asked.producer_id)
        return pair, ids.find(pair, now_ms)

    def _grants_grace(self, live: LiveUser, ahead: int, now_ms: int) -> bool:
        """Return whether an unseen id under enforcement is admitted as grace; `ahead`: unseen ids before it in its
        request.
        """
        if not self.table.grace.until_ms or self.table.quotas.cluster_rate_milli == 0:
            return False
        return self.table.grace.admits(live.quota.rate_milli, live.grace_admitted + ahead, now_ms)

    def _refusal(
        self, live: LiveUser, question: Question, asked: AskedId, ahead: int, now_ms: int
    ) -> _Refusal | None:
        """Return why an unseen id cannot be admitted now; `ahead`: unseen ids before it in its request."""
        if self.table.refusals.is_released(question.user, asked.producer_id):
            # Not even a release lets a batch pass before one that may lie unread elsewhere.
            return _Refusal(Reason.ESTABLISHED, SHORTEST_THROTTLE_MS) if asked.first_sight_above_0 else None
        blocked = self._blocked(live)
        if blocked is not None:
            return blocked
        left_ms = asked.deadline_ms - now_ms
        in_line = self._in_line(
            live, question, asked, came_back=asked.came_back or left_ms > 0, now_ms=now_ms
        )
        if left_ms > 0:
            place = live.queue.place(asked.producer_id) if in_line else None
            return _Refusal(Reason.DEADLINE, max(SHORTEST_THROTTLE_MS, left_ms), place)
        if asked.first_sight_above_0:
            return _Refusal(Reason.ESTABLISHED, SHORTEST_THROTTLE_MS)
        place = live.queue.place(asked.producer_id) if in_line else len(live.queue)
        wait_ms, bound = self._wait_ms(live, place + ahead, now_ms, enforced=True)
        if wait_ms == 0:
            return None
        return _Refusal(
            Reason.QUEUE if in_line else Reason.FIRST_SEEN,
            self._throttle_ms(wait_ms),
            place if in_line else None,
            bound,
        )

    def _blocked(self, live: LiveUser) -> _Refusal | None:
        """Refuse whatever is new under a rate of 0."""
        if live.quota.rate_milli != 0 and self.table.quotas.cluster_rate_milli != 0:
            return None
        bound = Bound.USER if live.quota.rate_milli == 0 else Bound.CLUSTER
        return _Refusal(Reason.BLOCKED, self.table.quotas.producer_ids.max_throttle_ms, bound=bound)

    def _throttle_ms(self, wait_ms: int) -> int:
        return min(max(SHORTEST_THROTTLE_MS, wait_ms), self.table.quotas.producer_ids.max_throttle_ms)

    def _in_line(
        self, live: LiveUser, question: Question, asked: AskedId, *, came_back: bool, now_ms: int
    ) -> bool:
        """Return whether the id is in its user's queue; an id that came back gets a place, and keeps it."""
        if not came_back and asked.producer_id not in live.queue:
            return False
        first_ms = now_ms if asked.first_refused_ms is None else asked.first_refused_ms
        return live.queue.came_back(
            asked.producer_id, question.address, question.client_id, first_refused_ms=first_ms, now_ms=now_ms
        )

    def _wait_ms(self, live: LiveUser, place: int, now_ms: int, *, enforced: bool) -> tuple[int, Bound]:
        """Return the wait (ms) until both buckets have a token for that place, and the bucket that is behind."""
        table = self.table
        own, cluster = table.spent_buckets(live) if enforced else table.observed_buckets(live, now_ms)
        own_ms = own.wait_ms(place, now_ms) if own else 0
        cluster_ms = cluster.wait_ms(place, now_ms) if cluster else 0
        return (cluster_ms, Bound.CLUSTER) if cluster_ms > own_ms else (own_ms, Bound.USER)

    def _refused(
        self, live: LiveUser, question: Question, asked: AskedId, refusal: _Refusal, now_ms: int
    ) -> Decision:
        units = live.units(now_ms)
        decision = decision_of(question, asked, False, refusal.reason, now_ms)
        decision.tokens_before = decision.tokens_after = units
        decision.throttle_time_ms = refusal.throttle_time_ms
        decision.queue_position = refusal.queue_position
        self._note_refusal(question.user, live, asked.producer_id, refusal, now_ms)
        return decision

    def _note_refusal(
        self, user: User, live: LiveUser, producer_id: int, refusal: _Refusal, now_ms: int
    ) -> None:
        of_user = refusal.bound is Bound.USER
        self.table.refusals.note(
            user,
            Refusal(
                producer_id,
                refusal.reason,
                refusal.bound,
                live.quota.rate_milli if of_user else self.table.quotas.cluster_rate_milli,
                now_ms,
                now_ms + refusal.throttle_time_ms,
                refusal.queue_position,
            ),
        )

    def _admit(
        self,
        live: LiveUser,
        question: Question,
        asked: AskedId,
        seen: tuple[HashPair, Sighting],
        enforced: bool,
        now_ms: int,
    ) -> Decision | None:
        """Insert and charge what is forwarded; None when nothing had to be done."""
        pair, sighting = seen
        if sighting is Sighting.CURRENT:
            self.table.refusals.admitted(question.user, asked.producer_id)
            return None
        if sighting is Sighting.REMEMBERED or self.table.refusals.is_released(
            question.user, asked.producer_id
        ):
            decision = decision_of(question, asked, True, Reason.REFRESH, now_ms)
        else:
            decision = self._admit_unseen(live, question, asked, enforced, now_ms)
        ids = live.ids(transactional=question.transactional)
        ids.insert(pair, now_ms, floor=live.floor, others_hear=self.in_fleet)
        self.table.refusals.admitted(question.user, asked.producer_id)
        if asked.producer_id in live.queue:
            live.queue.served(asked.producer_id)
        return decision

    def _admit_unseen(
        self, live: LiveUser, question: Question, asked: AskedId, enforced: bool, now_ms: int
    ) -> Decision:
        graced = enforced and self._grants_grace(live, 0, now_ms)
        reason = Reason.GRACE if graced else self._reason(live, asked, enforced)
        decision = decision_of(question, asked, True, reason, now_ms)
        decision.tokens_before = live.units(now_ms)
        if graced:
            live.grace_admitted += 1
        elif enforced:
            self.table.charge(live, TokenBucket.charge, now_ms)
        elif not live.quota.exempt:
            blocked = 0 in (live.quota.rate_milli, self.table.quotas.cluster_rate_milli)
            decision.would_refuse = blocked or self._wait_ms(live, 0, now_ms, enforced=False)[0] > 0
            self.table.charge_observed(live, now_ms)
        decision.tokens_after = live.units(now_ms)
        return decision

    def _reason(self, live: LiveUser, asked: AskedId, enforced: bool) -> Reason:
        if live.quota.exempt:
            return Reason.EXEMPT
        if not enforced:
            # A user under enforcement without any rate is admitted, not merely observed.
            is_unbounded = live.quota.enforces and not is_bounded(self.table.quotas, live.quota)
            if not is_unbounded:
                return Reason.OBSERVE
        return Reason.QUEUE if asked.producer_id in live.queue else Reason.FIRST_SEEN
