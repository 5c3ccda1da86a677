"""The quota of new producer ids per user (KIP-936): filters, buckets and queues, and the question they
answer.

Everything here could live in another process: a question holds all that is asked about, an answer all that
was decided. What a connection or a table of refusals knows is looked at before (admission.py), and never in
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quota.bloom import HashPair
from quota.entities import EffectiveQuota, User, may_refuse, resolve
from quota.layered_filter import FilterBudget, LayeredFilter, Sighting, usable_seed
from quota.retry_queue import FORGOTTEN_AFTER_MS, RetryQueue, Waiting
from quota.settings import Quotas
from quota.token_bucket import TokenBucket
from quota.verdicts import Bound, Decision, Reason

SHORTEST_THROTTLE_MS = 100
"""A refusal costs the client a round trip; less would make it spin."""

_FLOOR_WITHOUT_LIMIT = 1_000


@dataclass(slots=True)
class AskedId:
    """One producer id of a request, and what the asking process knows of it.

    `came_back`: the same batch was refused before; `first_sight_above_0`: on some partition nothing is
    known of the id and it arrives above sequence 0; `deadline_ms`, `first_refused_ms`: of its latest
    throttle and its first refusal.
    """

    producer_id: int
    epoch: int
    base_sequence: int
    topic: bytes
    partition: int
    came_back: bool = False
    first_sight_above_0: bool = False
    deadline_ms: int = 0
    first_refused_ms: int | None = None


@dataclass(slots=True)
class Question:
    """The ids of one request of one connection."""

    user: User
    address: str
    client_id: str
    transactional: bool
    request_partitions: int
    ids: Sequence[AskedId]


@dataclass(slots=True)
class Answer:
    """Nothing refused: the request may go. Otherwise `decisions` holds the refusals, and no token was
    spent.
    """

    refused: bool
    decisions: tuple[Decision, ...]
    bound: Bound = Bound.USER


@dataclass(slots=True)
class GaveUp:
    """An id left the queue without having been admitted."""

    user: User
    producer_id: int
    waited_ms: int
    attempts: int


class _UserState:
    """Filter, bucket and queue of one user. The bucket outlives a removed rate, so that it returns as it
    was.
    """

    __slots__ = ("bucket", "filter", "queue", "quota")

    def __init__(self, quota: EffectiveQuota, ids: LayeredFilter, queue: RetryQueue) -> None:
        self.quota = quota
        self.filter = ids
        self.queue = queue
        self.bucket: TokenBucket | None = None


@dataclass(slots=True)
class _Refusal:
    reason: Reason
    throttle_time_ms: int
    queue_position: int | None = None
    bound: Bound = Bound.USER


class ProducerIdQuota:
    """The state of all users. `seed_source` gives random integers: one is drawn for each user's filter."""

    def __init__(self, quotas: Quotas, seed_source: Callable[[], int], now_ms: int) -> None:
        self._quotas = quotas
        self._seed_source = seed_source
        self._budget = FilterBudget(quotas.producer_ids)
        self._users: dict[User, _UserState] = {}
        self._cluster: TokenBucket | None = None
        self._gave_up: list[GaveUp] = []
        self._shape_cluster(now_ms)

    # Deciding

    def decide(self, question: Question, now_ms: int) -> Answer:
        """All ids are looked at before any is charged: a request passes as a whole or not at all."""
        state = self._state(question.user, now_ms)
        self._drop_given_up(question.user, state, now_ms)
        enforced = may_refuse(self._quotas, state.quota, transactional=question.transactional)
        sighted = [self._sighted(state, asked, now_ms) for asked in question.ids]
        refusals: list[Decision] = []
        bound, longest_ms, unseen = Bound.USER, 0, 0
        for asked, (_, sighting) in zip(question.ids, sighted, strict=True):
            if sighting is not Sighting.UNSEEN or not enforced:
                continue
            refusal = self._refusal(state, question, asked, unseen, now_ms)
            unseen += 1
            if refusal is not None:
                refusals.append(self._refused(state, question, asked, refusal, now_ms))
                if refusal.throttle_time_ms > longest_ms:
                    bound, longest_ms = refusal.bound, refusal.throttle_time_ms
        if refusals:
            return Answer(True, tuple(refusals), bound)
        admitted = (
            self._admit(state, question, asked, seen, enforced, now_ms)
            for asked, seen in zip(question.ids, sighted, strict=True)
        )
        return Answer(False, tuple(decision for decision in admitted if decision is not None))

    def remembers(self, user: User, producer_id: int, now_ms: int) -> bool:
        """Whether an id would be free of charge."""
        state = self._users.get(user)
        if state is None:
            return False
        return state.filter.find(state.filter.hashed(producer_id), now_ms) is not Sighting.UNSEEN

    def insert_uncharged(self, user: User, producer_id: int, now_ms: int) -> None:
        """The id counts as admitted, and no token is spent."""
        state = self._state(user, now_ms)
        state.filter.insert(state.filter.hashed(producer_id), now_ms, floor=self._floor(state))
        if producer_id in state.queue:
            state.queue.served(producer_id)

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """The new id is admitted as the old one was, uncharged; False when the old one is not remembered."""
        if not self.remembers(user, old_producer_id, now_ms):
            return False
        self.insert_uncharged(user, new_producer_id, now_ms)
        return True

    @staticmethod
    def _sighted(state: _UserState, asked: AskedId, now_ms: int) -> tuple[HashPair, Sighting]:
        pair = state.filter.hashed(asked.producer_id)
        return pair, state.filter.find(pair, now_ms)

    def _refusal(
        self, state: _UserState, question: Question, asked: AskedId, ahead: int, now_ms: int
    ) -> _Refusal | None:
        """Why an unseen id cannot be admitted now; `ahead`: unseen ids before it in its own request."""
        longest_ms = self._quotas.producer_ids.max_throttle_ms
        if state.quota.rate_milli == 0 or self._quotas.cluster_rate_milli == 0:
            bound = Bound.USER if state.quota.rate_milli == 0 else Bound.CLUSTER
            return _Refusal(Reason.BLOCKED, longest_ms, bound=bound)
        left_ms = asked.deadline_ms - now_ms
        in_line = self._in_line(
            state, question, asked, came_back=asked.came_back or left_ms > 0, now_ms=now_ms
        )
        if left_ms > 0:
            place = state.queue.place(asked.producer_id) if in_line else None
            return _Refusal(Reason.DEADLINE, max(SHORTEST_THROTTLE_MS, left_ms), place)
        if asked.first_sight_above_0:
            return _Refusal(Reason.ESTABLISHED, SHORTEST_THROTTLE_MS)
        place = state.queue.place(asked.producer_id) if in_line else len(state.queue)
        wait_ms, bound = self._wait_ms(state, place + ahead, now_ms)
        if wait_ms == 0:
            return None
        throttle_ms = min(max(SHORTEST_THROTTLE_MS, wait_ms), longest_ms)
        return _Refusal(
            Reason.QUEUE if in_line else Reason.FIRST_SEEN, throttle_ms, place if in_line else None, bound
        )

    def _in_line(
        self, state: _UserState, question: Question, asked: AskedId, *, came_back: bool, now_ms: int
    ) -> bool:
        """Whether the id has a place in its user's queue; it gets one when it came back, and keeps it then."""
        if not came_back and asked.producer_id not in state.queue:
            return False
        first_ms = now_ms if asked.first_refused_ms is None else asked.first_refused_ms
        return state.queue.came_back(
            asked.producer_id, question.address, question.client_id, first_refused_ms=first_ms, now_ms=now_ms
        )

    def _wait_ms(self, state: _UserState, place: int, now_ms: int) -> tuple[int, Bound]:
        """Until both the user's and the cluster's bucket have a token for that place, and which one is
        behind.
        """
        own_ms = state.bucket.wait_ms(place, now_ms) if state.bucket and state.quota.rate_milli else 0
        cluster_ms = self._cluster.wait_ms(place, now_ms) if self._cluster else 0
        return (cluster_ms, Bound.CLUSTER) if cluster_ms > own_ms else (own_ms, Bound.USER)

    def _refused(
        self, state: _UserState, question: Question, asked: AskedId, refusal: _Refusal, now_ms: int
    ) -> Decision:
        units = self._units(state, now_ms)
        decision = decision_of(question, asked, False, refusal.reason, now_ms)
        decision.tokens_before = decision.tokens_after = units
        decision.throttle_time_ms = refusal.throttle_time_ms
        decision.queue_position = refusal.queue_position
        return decision

    def _admit(
        self,
        state: _UserState,
        question: Question,
        asked: AskedId,
        seen: tuple[HashPair, Sighting],
        enforced: bool,
        now_ms: int,
    ) -> Decision | None:
        """Inserts and charges what is forwarded; None when nothing had to be done."""
        pair, sighting = seen
        if sighting is Sighting.CURRENT:
            return None
        if sighting is Sighting.REMEMBERED:
            decision = decision_of(question, asked, True, Reason.REFRESH, now_ms)
        else:
            decision = self._admit_unseen(state, question, asked, enforced, now_ms)
        state.filter.insert(pair, now_ms, floor=self._floor(state))
        if asked.producer_id in state.queue:
            state.queue.served(asked.producer_id)
        return decision

    def _admit_unseen(
        self, state: _UserState, question: Question, asked: AskedId, enforced: bool, now_ms: int
    ) -> Decision:
        decision = decision_of(question, asked, True, self._reason(state, asked, enforced), now_ms)
        decision.tokens_before = self._units(state, now_ms)
        if not state.quota.exempt:
            if not enforced:
                blocked = 0 in (state.quota.rate_milli, self._quotas.cluster_rate_milli)
                decision.would_refuse = blocked or self._wait_ms(state, 0, now_ms)[0] > 0
            self._charge(state, enforced, now_ms)
        decision.tokens_after = self._units(state, now_ms)
        return decision

    @staticmethod
    def _reason(state: _UserState, asked: AskedId, enforced: bool) -> Reason:
        if state.quota.exempt:
            return Reason.EXEMPT
        if not enforced and not _unlimited_enforced(state.quota):
            return Reason.OBSERVE
        return Reason.QUEUE if asked.producer_id in state.queue else Reason.FIRST_SEEN

    def _charge(self, state: _UserState, enforced: bool, now_ms: int) -> None:
        for bucket in (state.bucket if state.quota.rate_milli else None, self._cluster):
            if bucket is None:
                continue
            if enforced:
                bucket.charge(now_ms)
            else:
                bucket.charge_floored(now_ms)

    @staticmethod
    def _units(state: _UserState, now_ms: int) -> int | None:
        return state.bucket.units(now_ms) if state.bucket and state.quota.rate_milli else None

    # Settings and time

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """New quotas for everyone: buckets keep their fraction, filters and queues what is in them."""
        self._quotas = quotas
        settings = quotas.producer_ids
        self._budget.reshape(settings)
        self._shape_cluster(now_ms)
        for user, state in self._users.items():
            state.quota = resolve(quotas, user)
            state.filter.reshape(settings)
            state.queue.limit = settings.queue
            self._shape_bucket(state, now_ms)

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Drops the users of whom nothing is left to know; returns who gave up since the last sweep."""
        for user, state in list(self._users.items()):
            self._drop_given_up(user, state, now_ms)
            bucket_is_full = state.bucket is None or state.bucket.is_full(now_ms)
            if bucket_is_full and not state.queue and state.filter.is_empty(now_ms):
                del self._users[user]
        gave_up, self._gave_up = self._gave_up, []
        return gave_up

    def _state(self, user: User, now_ms: int) -> _UserState:
        state = self._users.get(user)
        if state is None:
            settings = self._quotas.producer_ids
            ids = LayeredFilter(settings, self._budget, usable_seed(self._seed_source()))
            state = _UserState(resolve(self._quotas, user), ids, RetryQueue(settings.queue))
            self._shape_bucket(state, now_ms)
            self._users[user] = state
        return state

    def _shape_bucket(self, state: _UserState, now_ms: int) -> None:
        if state.quota.rate_milli:
            state.bucket = self._shaped(state.bucket, state.quota.rate_milli, now_ms)

    def _shape_cluster(self, now_ms: int) -> None:
        rate_milli = self._quotas.cluster_rate_milli
        self._cluster = self._shaped(self._cluster, rate_milli, now_ms) if rate_milli else None

    def _shaped(self, bucket: TokenBucket | None, rate_milli: int, now_ms: int) -> TokenBucket:
        settings = self._quotas.producer_ids
        if bucket is None:
            return TokenBucket(rate_milli, settings.window_ms, settings.burst, now_ms)
        bucket.reshape(rate_milli, settings.window_ms, settings.burst, now_ms)
        return bucket

    def _floor(self, state: _UserState) -> int:
        """The least design count of a new filter layer: a layer's part of what the quota may admit."""
        rate_milli = state.quota.rate_milli
        if rate_milli is None:
            return _FLOOR_WITHOUT_LIMIT
        settings = self._quotas.producer_ids
        per_layer = rate_milli * settings.burst / (1000 * settings.layers)
        return -(-per_layer.numerator // per_layer.denominator)

    def _drop_given_up(self, user: User, state: _UserState, now_ms: int) -> None:
        patience_ms = self._quotas.producer_ids.max_throttle_ms + FORGOTTEN_AFTER_MS
        for waiting in state.queue.drop_unseen_since(now_ms - patience_ms):
            self._gave_up.append(_gave_up(user, waiting))

    # For metrics

    def users(self) -> list[User]:
        return list(self._users)

    def tokens(self, user: User, now_ms: int) -> float | None:
        """Below 0 is the published sign of throttling; None without a limit."""
        state = self._users.get(user)
        if state is None or state.bucket is None or not state.quota.rate_milli:
            return None
        return state.bucket.units(now_ms) / state.bucket.token_units

    def live_ids(self, user: User, now_ms: int) -> int:
        state = self._users.get(user)
        return state.filter.live_ids(now_ms) if state else 0

    def waiting(self, user: User) -> int:
        """Ids in the user's queue."""
        state = self._users.get(user)
        return len(state.queue) if state else 0

    def oldest_waiting_ms(self, user: User, now_ms: int) -> int:
        """How long the id that waits longest has been waiting; 0 when nobody is."""
        state = self._users.get(user)
        first_ms = state.queue.oldest_first_refused_ms() if state else None
        return 0 if first_ms is None else now_ms - first_ms

    @property
    def filter_bytes(self) -> int:
        return sum(state.filter.size_bytes for state in self._users.values())

    @property
    def overfull_inserts(self) -> int:
        """Ids put into layers beyond their design count: the false-positive target no longer holds. Alarm."""
        return self._budget.overfull


def _unlimited_enforced(quota: EffectiveQuota) -> bool:
    """A user under enforcement whom no rate bounds is admitted, not merely observed."""
    return quota.enforces and quota.rate_milli is None


def _gave_up(user: User, waiting: Waiting) -> GaveUp:
    waited_ms = waiting.last_seen_ms - waiting.first_refused_ms
    return GaveUp(user, waiting.producer_id, waited_ms, waiting.attempts)


def decision_of(question: Question, asked: AskedId, admitted: bool, reason: Reason, now_ms: int) -> Decision:
    """What was decided about one id of a question; tokens and throttle are filled in by whoever knows them."""
    first_ms = asked.first_refused_ms
    return Decision(
        question.user,
        asked.producer_id,
        asked.epoch,
        question.transactional,
        asked.topic,
        asked.partition,
        asked.base_sequence,
        question.request_partitions,
        admitted,
        reason,
        waited_ms=None if first_ms is None else now_ms - first_ms,
    )
