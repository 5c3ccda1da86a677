"""Whether a Produce request may pass: the local look (refusals, caches) joined with the question to the
quota's state.

The order is the whole point. What was refused is looked at before any cache and before the quota: neither an
admission, nor a raised rate, nor observing, nor an exemption, nor failing open lets a batch pass before one
that was refused. Only then may the connection's cache say "known", and only then is the state asked.

Knows neither bytes nor sockets; one instance for each process that owns connections.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from pidgate.quota.counters import COUNTERS_KEPT_MS, UserCounters, UserSnapshot
from pidgate.quota.entities import User, enforces, is_bounded, resolve
from pidgate.quota.owners import ProducerIdOwners
from pidgate.quota.producer_ids import (
    SHORTEST_THROTTLE_MS,
    Answer,
    AskedId,
    GaveUp,
    ProducerIdQuota,
    Question,
)
from pidgate.quota.questions import new_id_question
from pidgate.quota.settings import Quotas
from pidgate.quota.snapshots import snapshot
from pidgate.quota.state import PendingDecision, QuotaState, failed_open
from pidgate.quota.sticky import TOPIC_ID_PREFIX, Look, RefusedId, StickyRefusals
from pidgate.quota.verdicts import (
    FORWARD,
    Bound,
    Close,
    Decision,
    Forward,
    ProducerBatch,
    Reason,
    Refuse,
    Session,
    Verdict,
    lowest_of_each_partition,
)

__all__ = [
    "Admission",
    "Close",
    "Forward",
    "PendingDecision",
    "ProducerBatch",
    "Reason",
    "Refuse",
    "Session",
    "Verdict",
]

_NOTHING_WATCHED: Mapping[int, RefusedId] = MappingProxyType({})
_GENERATION_STEP = 1 << 48  # beyond any slice number: a cache entry of an earlier generation never fits

_Looked = list[tuple[ProducerBatch, Look]]


class Admission:
    """The quota as the gateway's connections see it. All times are monotonic milliseconds."""

    def __init__(
        self,
        quotas: Quotas,
        seed_source: Callable[[], int],
        now_ms: int,
        *,
        state: QuotaState | None = None,
        sticky: StickyRefusals | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self.sticky = sticky or StickyRefusals(quotas.producer_ids.sticky_entries)
        self.owners = ProducerIdOwners()
        self.failures = 0
        """How often the state could not be asked and the request was let pass. Alarm."""
        self._on_failure = on_failure
        self._state: QuotaState = state or ProducerIdQuota(quotas, seed_source, now_ms)
        self._quotas = quotas
        self._slice_ms = quotas.producer_ids.slice_ms
        self._generation = 0
        self._counters: dict[User, UserCounters] = {}

    @property
    def quotas(self) -> Quotas:
        return self._quotas

    # Judging

    def knows(
        self,
        session: Session,
        producer_id: int,
        epoch: int,
        topic: bytes,
        partitions: list[int],
        now_ms: int,
    ) -> bool:
        """Whether `judge` would say FORWARD of such batches in these partitions because all of it is known. The hottest
        question there is: nothing is made for it, and False only means that `judge` has to be asked.
        """
        if session.admitted.get(producer_id) != self._slice_key(now_ms):
            return False
        record = self.sticky.watched.get(session.user, _NOTHING_WATCHED).get(producer_id)
        return record is None or self.sticky.are_next(record, epoch, topic, partitions, session.connection_id)

    def judge(
        self,
        session: Session,
        batches: list[ProducerBatch],
        *,
        transactional: bool,
        now_ms: int,
        asked: PendingDecision | None = None,
    ) -> Verdict | PendingDecision:
        """The ordinary look at a Produce request that is next in line on a channel that is not muted.

        `Ask`: whoever answers is elsewhere. The request waits, and comes here again with `asked`, answered. All
        is looked at anew then, since other connections went on meanwhile: a batch may have been refused there.
        """
        if self._known(session, batches, self._slice_key(now_ms)):
            return FORWARD
        first = lowest_of_each_partition(batches)
        looked = [(batch, self._look(session, batch, now_ms)) for batch in first]
        for batch in first:
            self.owners.produced(batch[0])
        return self._refused_locally(session, looked, transactional, now_ms) or self._ask_state(
            session, looked, transactional, now_ms, asked
        )

    def judge_new_id(
        self, session: Session, now_ms: int, asked: PendingDecision | None = None
    ) -> Forward | Refuse | PendingDecision:
        """InitProducerId without a transactional id: may a broker be asked for a new id? As `judge`.

        No entry and no deadline is kept of a refusal: nothing was sent that could be lost, and whoever comes again,
        on whichever connection, is refused again for as long as there are no tokens.
        """
        quotas = self._quotas
        if not quotas.producer_ids.refuse_init or not is_bounded(quotas, resolve(quotas, session.user)):
            return FORWARD
        answer = asked.answer if asked is not None else None
        if answer is None:
            question = new_id_question(session.user, session.address, session.client_id)
            answer = self._answer(question, now_ms)
            if answer is None:
                return PendingDecision(question, now_ms)
        for decision in answer.decisions:
            self._counters_of(session.user, now_ms).count_new_id(decision, now_ms)
        return self._refusal_of(session, answer) if answer.refused else FORWARD

    def judge_while_muted(
        self, session: Session, batches: list[ProducerBatch], *, transactional: bool, now_ms: int
    ) -> Refuse | Close | None:
        """A request read ahead behind a mute: refused at once when it would be refused anyway, else None:
        hold it.

        Refused are batches above a refused one, and the first ones of another partition of an id that is
        still under its deadline; the mute is not re-armed. A retry of the refused batch itself is never
        answered here.
        """
        first = lowest_of_each_partition(batches)
        looked = [(batch, self._look(session, batch, now_ms)) for batch in first]
        if any(look in (Look.SAME, Look.BELOW) for _, look in looked):
            return None
        above = self._refused_as_sticky(session, looked, transactional, now_ms)
        if above is not None:
            return above
        if not enforces(self._quotas, session.user, transactional=transactional):
            return None
        for batch, look in looked:
            left_ms = self._left_ms(session.user, batch[0], now_ms)
            if look is Look.FIRST_SIGHT and left_ms > 0:
                return self._refuse_locally(
                    session, looked, batch, Reason.DEADLINE, left_ms, transactional, now_ms
                )
        return None

    def _slice_key(self, now_ms: int) -> int:
        return now_ms // self._slice_ms + self._generation

    def _look(self, session: Session, batch: ProducerBatch, now_ms: int) -> Look:
        return self.sticky.look(session.user, batch, session.connection_id, now_ms)

    def _known(self, session: Session, batches: Collection[ProducerBatch], slice_key: int) -> bool:
        """The hot path: every id was admitted in this slice, and of those that are watched nothing waits."""
        watched = self.sticky.watched.get(session.user, _NOTHING_WATCHED)
        admitted = session.admitted
        for batch in batches:
            producer_id = batch[0]
            if admitted.get(producer_id) != slice_key:
                return False
            record = watched.get(producer_id)
            if record is not None and not self.sticky.are_next(
                record, batch[1], batch[3], [batch[4]], session.connection_id
            ):
                return False
        return True

    def _first_sight_above_0(self, batch: ProducerBatch, look: Look) -> bool:
        """A new producer starts every partition at 0: above it, an earlier batch may lie unread behind a
        mute.
        """
        return look in (Look.FIRST_SIGHT, Look.UNWATCHED) and batch[2] != 0

    def _refused_locally(
        self, session: Session, looked: _Looked, transactional: bool, now_ms: int
    ) -> Refuse | Close | None:
        """What needs no state, and what no mode, exemption or rate changes."""
        above = self._refused_as_sticky(session, looked, transactional, now_ms)
        if above is not None:
            return above
        for batch, look in looked:
            if look is Look.FIRST_SIGHT and self._first_sight_above_0(batch, look):
                return self._refuse_locally(
                    session, looked, batch, Reason.ESTABLISHED, SHORTEST_THROTTLE_MS, transactional, now_ms
                )
        return None

    def _refused_as_sticky(
        self, session: Session, looked: _Looked, transactional: bool, now_ms: int
    ) -> Refuse | Close | None:
        above = [batch for batch, look in looked if look is Look.ABOVE]
        if not above:
            return None
        for batch in above:
            if self.sticky.too_many_further(session.user, batch):
                return self._close(session, "sticky_batch_missing", batch[0], now_ms)
        left_ms = self._left_ms(session.user, above[0][0], now_ms)
        return self._refuse_locally(session, looked, above[0], Reason.STICKY, left_ms, transactional, now_ms)

    def _refuse_locally(
        self,
        session: Session,
        looked: _Looked,
        cause: ProducerBatch,
        reason: Reason,
        throttle_ms: int,
        transactional: bool,
        now_ms: int,
    ) -> Refuse | Close:
        throttle_ms = max(SHORTEST_THROTTLE_MS, throttle_ms)
        producer_id, epoch, base_sequence, topic, partition = cause
        decision = Decision(
            session.user,
            producer_id,
            epoch,
            transactional,
            topic,
            partition,
            base_sequence,
            len(looked),
            False,
            reason,
            throttle_time_ms=throttle_ms,
        )
        refusal = self._refusal(session.user, decision, (decision,))
        refusal.rearms_mute = reason is Reason.ESTABLISHED
        return self._record_refusal(session, looked, refusal, now_ms)

    # Asking

    def _ask_state(
        self,
        session: Session,
        looked: _Looked,
        transactional: bool,
        now_ms: int,
        asked: PendingDecision | None,
    ) -> Verdict | PendingDecision:
        """The question, its answer, and what follows from it."""
        if asked is not None and asked.answer is not None:
            answer, decided_ms = asked.answer, asked.asked_ms
        else:
            question = self._question(session, looked, transactional, now_ms)
            given = self._answer(question, now_ms)
            if given is None:
                return PendingDecision(question, now_ms)
            answer, decided_ms = given, now_ms
        if answer.refused:
            return self._refused_by_state(session, looked, answer, now_ms)
        slice_key = self._slice_key(decided_ms)
        for batch, _ in looked:
            session.remember(batch[0], slice_key)
        counters = self._counters_of(session.user, now_ms)
        for decision in answer.decisions:
            counters.count(decision, now_ms)
            self._watch_admitted(session.user, decision, transactional, now_ms)
        for batch, _ in looked:
            self.sticky.forwarded(session.user, batch, session.connection_id)
        return Forward(answer.decisions) if answer.decisions else FORWARD

    def _watch_admitted(self, user: User, decision: Decision, transactional: bool, now_ms: int) -> None:
        """A new id of a user whose ids may be refused: another process may have refused it just before."""
        new = decision.reason in (Reason.FIRST_SEEN, Reason.QUEUE)
        if new and enforces(self._quotas, user, transactional=transactional):
            self.sticky.admitted(user, decision.producer_id, now_ms)

    def _question(self, session: Session, looked: _Looked, transactional: bool, now_ms: int) -> Question:
        ids: dict[int, AskedId] = {}
        for batch, look in looked:
            producer_id, epoch, base_sequence, topic, partition = batch
            asked = ids.get(producer_id)
            if asked is None:
                asked = ids[producer_id] = AskedId(producer_id, epoch, base_sequence, topic, partition)
                record = self.sticky.refused_id(session.user, producer_id, now_ms)
                if record is not None:
                    asked.deadline_ms = record.deadline_ms
                    asked.first_refused_ms = record.first_refused_ms
            asked.came_back |= look is Look.SAME
            asked.first_sight_above_0 |= self._first_sight_above_0(batch, look)
        return Question(
            session.user, session.address, session.client_id, transactional, len(looked), list(ids.values())
        )

    def _answer(self, question: Question, now_ms: int) -> Answer | None:
        try:
            return self._state.decide(question, now_ms)
        except Exception as problem:  # noqa: BLE001  (the gateway is never the reason that Kafka is down)
            self.failures += 1
            if self._on_failure is not None:
                self._on_failure(problem)
            return self.failed_open(question, now_ms)

    def failed_open(self, question: Question, now_ms: int) -> Answer:
        """The answer when nobody gives one. Whoever asks for it counts it."""
        answer, failures = failed_open(self._state, question, now_ms)
        self.failures += failures
        return answer

    def _refused_by_state(
        self, session: Session, looked: _Looked, answer: Answer, now_ms: int
    ) -> Refuse | Close:
        refusal = self._refusal_of(session, answer)
        verdict = self._record_refusal(session, looked, refusal, now_ms)
        if verdict is refusal:
            for decision in answer.decisions:
                # Coming back too early keeps the deadline: with the shortest throttle added each time, two
                # connections of one id could put it off for each other without end.
                if decision.reason not in (Reason.ESTABLISHED, Reason.DEADLINE):
                    until_ms = now_ms + decision.throttle_time_ms
                    self.sticky.throttled(session.user, decision.producer_id, until_ms)
        return verdict

    def _refusal_of(self, session: Session, answer: Answer) -> Refuse:
        longest = max(answer.decisions, key=lambda decision: decision.throttle_time_ms)
        refusal = self._refusal(session.user, longest, answer.decisions)
        refusal.bound = answer.bound
        if answer.bound is Bound.CLUSTER:
            refusal.rate_milli = self._quotas.cluster_rate_milli
        return refusal

    def _refusal(self, user: User, decision: Decision, decisions: tuple[Decision, ...]) -> Refuse:
        return Refuse(
            decision.throttle_time_ms,
            decision.reason,
            decision.producer_id,
            True,
            user,
            resolve(self._quotas, user).rate_milli,
            self._quotas.producer_ids.window_ms,
            decisions=decisions,
        )

    def _record_refusal(
        self, session: Session, looked: _Looked, refusal: Refuse, now_ms: int
    ) -> Refuse | Close:
        """Every partition of a refused request gets its entry; without room for them nothing may be
        answered.
        """
        batches = [batch for batch, _ in looked]
        if self.sticky.holds_too_many(session.user, batches):
            return self._close(session, "sticky_table_full", refusal.producer_id, now_ms)
        for batch in batches:
            self.sticky.refused(session.user, batch, session.connection_id, now_ms)
        self._counters_of(session.user, now_ms).count_refusal(
            refusal.reason, refusal.throttle_time_ms, now_ms
        )
        return refusal

    def _close(self, session: Session, reason: str, producer_id: int, now_ms: int) -> Close:
        self._counters_of(session.user, now_ms).count_close(reason)
        return Close(reason, producer_id)

    def _left_ms(self, user: User, producer_id: int, now_ms: int) -> int:
        """What is left of the id's throttle; 0 or less when it is over or there was none."""
        record = self.sticky.refused_id(user, producer_id, now_ms)
        return record.deadline_ms - now_ms if record else 0

    # What else happens

    def connection_closed(self, connection_id: int, now_ms: int) -> None:
        """The client is gone: its refused batches are resent from the lowest, and its unused ids are
        counted.
        """
        self.sticky.connection_closed(connection_id)
        for user, unused in self.owners.connection_closed(connection_id).items():
            self._counters_of(user, now_ms).unused_ids += unused

    def topic_alias(self, name: bytes, topic_id: bytes) -> None:
        """Teaches that a name and an id (its 16 bytes, with or without the zero byte before them) are one
        topic.
        """
        prefixed = topic_id if len(topic_id) == 17 else TOPIC_ID_PREFIX + topic_id
        self.sticky.topics.learn(name, prefixed)

    def refused_elsewhere(self, user: User, producer_id: int, now_ms: int) -> None:
        """Another worker or gateway refused the id: its first batch above 0 on a connection here is refused once,
        whatever the modes and quotas are by then.
        """
        self.sticky.refused_elsewhere(user, producer_id, now_ms)

    def owner_learnt(self, user: User, producer_id: int, epoch: int, connection_id: int, now_ms: int) -> None:
        """InitProducerId or EndTxn v5+ was answered with this id and epoch on that connection."""
        self.owners.learnt(user, producer_id, epoch, connection_id)

    def inherits(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """EndTxn v5+ handed out a new id: it is admitted as its predecessor was, uncharged. Says whether it was."""
        if old_producer_id == new_producer_id:
            return False
        if not self._state.inherit(user, old_producer_id, new_producer_id, now_ms):
            return False
        admitted = self._counters_of(user, now_ms).admitted
        admitted[Reason.INHERITED] = admitted.get(Reason.INHERITED, 0) + 1
        return True

    def use_state(self, state: QuotaState) -> None:
        """Ask this one from now on (it has been restored). What connections keep in their caches is looked up anew."""
        self._state = state
        self._generation += _GENERATION_STEP

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """New quotas, at once. What was refused stays refused until it is sent in order: no entry is
        lifted.
        """
        self._quotas = quotas
        self._state.set_quotas(quotas, now_ms)
        self.sticky.entries_per_user = quotas.producer_ids.sticky_entries
        self._slice_ms = quotas.producer_ids.slice_ms
        self._generation += _GENERATION_STEP

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Forgets what is over, about once a second; returns the ids that gave up waiting."""
        self.sticky.sweep(now_ms)
        gave_up = self._state.sweep(now_ms)
        for gone in gave_up:
            self._counters_of(gone.user, now_ms).gave_up += 1
        known = {*self._state.users(), *self.sticky.watched}
        for user, counters in list(self._counters.items()):
            if user not in known and now_ms - counters.last_ms >= COUNTERS_KEPT_MS:
                del self._counters[user]
        return gave_up

    def user_snapshots(self, now_ms: int, *, counted_since_ms: int | None = None) -> list[UserSnapshot]:
        """Every user that is known, for metrics; or those of whom something was counted since that time."""
        users = dict.fromkeys([*self._state.users(), *self._counters])
        return [
            snapshot(
                user,
                counters,
                resolve(self._quotas, user),
                self._state,
                self.sticky.entries_of(user),
                now_ms,
            )
            for user in users
            if (counters := self._counters.get(user, UserCounters())).last_ms >= (counted_since_ms or 0)
        ]

    @property
    def filter_bytes(self) -> int:
        """Memory of all filters."""
        return self._state.filter_bytes

    @property
    def overfull_inserts(self) -> int:
        """Ids put into filters beyond what they were made for. Alarm."""
        return self._state.overfull_inserts

    def _counters_of(self, user: User, now_ms: int) -> UserCounters:
        counters = self._counters.get(user)
        if counters is None:
            counters = self._counters[user] = UserCounters()
        counters.last_ms = now_ms
        return counters
