"""Counters, id owners and explained refusals, by user: for metrics and operators. PURE.

Only an operator's release of an id has an effect on decisions.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from pidgate.quota.decisions import KEEPS_ORDER, Bound, Decision, Reason
from pidgate.quota.entities import EffectiveQuota, Portions, User, table_key

SAMPLE_MS: Final = 30_000
"""Two samples of 30 s: Kafka's metrics.num.samples and metrics.sample.window.ms."""

COUNTERS_KEPT_MS: Final = 3_600_000
"""After a user's last count, when nothing else is known of it: Kafka's quota sensors expire after an hour."""

WAITED_BUCKETS_MS: Final = (500, 1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 86_400_000)
"""Upper bounds: 120 s is Java's delivery timeout, 300 s librdkafka's. Waits of more than a day count in the last one.
"""


class Samples:
    """Sum and count over the current sample and the one before."""

    __slots__ = ("_current", "_number", "_previous")

    def __init__(self) -> None:
        self._number = 0
        self._current = self._previous = (0, 0)

    def record(self, value: int, now_ms: int) -> None:
        self._roll(now_ms)
        total, count = self._current
        self._current = (total + value, count + 1)

    def per_second(self, now_ms: int) -> float:
        self._roll(now_ms)
        return (self._current[0] + self._previous[0]) * 1000 / (SAMPLE_MS + now_ms % SAMPLE_MS)

    def mean(self, now_ms: int) -> float:
        """Return the average of the recorded values, 0 without any."""
        self._roll(now_ms)
        count = self._current[1] + self._previous[1]
        return (self._current[0] + self._previous[0]) / count if count else 0.0

    def _roll(self, now_ms: int) -> None:
        number = now_ms // SAMPLE_MS
        if number != self._number:
            self._previous = self._current if number == self._number + 1 else (0, 0)
            self._current = (0, 0)
            self._number = number


HOUR_MINUTES: Final = 60


class Minutes:
    """Counts of the last hour by minute."""

    __slots__ = ("_counts", "_minute")

    def __init__(self) -> None:
        self._counts: array[int] | None = None
        """By minute modulo 60. None: nothing was counted; most users have no refusals."""
        self._minute = 0

    def count(self, now_ms: int, many: int = 1) -> None:
        if self._counts is None:
            self._counts = array("L", bytes(8 * HOUR_MINUTES))
        self._roll(now_ms)
        self._counts[self._minute % HOUR_MINUTES] += many

    def of_hour(self, now_ms: int) -> list[int]:
        """Return the counts of the last hour, oldest first; an empty list if nothing was counted."""
        if self._counts is None:
            return []
        self._roll(now_ms)
        newest = self._minute % HOUR_MINUTES + 1
        counts = self._counts.tolist()
        return counts[newest:] + counts[:newest]

    def _roll(self, now_ms: int) -> None:
        minute = now_ms // 60_000
        if minute > self._minute and self._counts is not None:
            for passed in range(max(self._minute + 1, minute - HOUR_MINUTES + 1), minute + 1):
                self._counts[passed % HOUR_MINUTES] = 0
            self._minute = minute


OUTCOMES: Final = ("admitted_after_waiting", "gave_up")
CLOSES: Final = ("sticky_batch_missing", "sticky_table_full")
"""Reasons to close a connection instead of a refusal."""
DIRECTIONS: Final = ("from_client", "to_client")


@dataclass(slots=True)
class UserCounters:
    """Totals of one user since it is known; `last_ms`: when something was last counted."""

    admitted: dict[Reason, int] = field(default_factory=dict)
    refused: dict[Reason, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    would_refuse: int = 0
    waited_ms_buckets: dict[int, int] = field(default_factory=dict)
    waited_ms_sum: int = 0
    gave_up: int = 0
    unused_ids: int = 0
    inits_refused: int = 0
    inits_would_refuse: int = 0
    inits_failed_open: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    last_ms: int = 0
    new_ids: Samples = field(default_factory=Samples)
    throttle_times_ms: Samples = field(default_factory=Samples)
    new_by_minute: Minutes = field(default_factory=Minutes)
    refused_by_minute: Minutes = field(default_factory=Minutes)

    def count_admission(self, decision: Decision, now_ms: int) -> None:
        """Count an id that was admitted. Refusals are counted by request, with `count_refusal`."""
        self.admitted[decision.reason] = self.admitted.get(decision.reason, 0) + 1
        if decision.would_refuse:
            self.would_refuse += 1
        if decision.reason in (Reason.REFRESH, Reason.INHERITED):
            return
        self.new_ids.record(1, now_ms)
        self.new_by_minute.count(now_ms)
        if decision.waited_ms is not None:
            self._count_waited(decision.waited_ms)

    def _count_waited(self, waited_ms: int) -> None:
        place = min(bisect_left(WAITED_BUCKETS_MS, waited_ms), len(WAITED_BUCKETS_MS) - 1)
        bound_ms = WAITED_BUCKETS_MS[place]
        self.waited_ms_buckets[bound_ms] = self.waited_ms_buckets.get(bound_ms, 0) + 1
        self.waited_ms_sum += waited_ms

    def count_refusal(self, reason: Reason, throttle_time_ms: int, now_ms: int) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        if reason not in KEEPS_ORDER:
            self.refused_by_minute.count(now_ms)
            self.throttle_times_ms.record(throttle_time_ms, now_ms)

    def count_new_ids(self, decisions: Iterable[Decision], now_ms: int) -> None:
        """Count the InitProducerIds among these that were refused, would have been, or passed undecided."""
        for decision in decisions:
            if decision.reason is Reason.FAIL_OPEN and decision.admitted:
                self.inits_failed_open += 1
            if decision.would_refuse:
                self.inits_would_refuse += 1
            elif not decision.admitted:
                self.inits_refused += 1
                self.refused_by_minute.count(now_ms)
                self.throttle_times_ms.record(decision.throttle_time_ms, now_ms)

    def count_close(self, reason: str) -> None:
        self.closed[reason] = self.closed.get(reason, 0) + 1

    def snapshot(
        self, user: User, quota: EffectiveQuota, status: UserStatus, sticky_entries: int, now_ms: int
    ) -> UserSnapshot:
        """Join these counters with the user's quota and state."""
        return UserSnapshot(
            user=user,
            enforces=quota.enforces,
            exempt=quota.exempt,
            rate_milli=quota.rate_milli,
            tokens=status.tokens,
            states_tokens=status.states_tokens,
            admitted_per_s=self.new_ids.per_second(now_ms),
            throttle_time_ms=self.throttle_times_ms.mean(now_ms),
            waiting=status.waiting,
            oldest_waiting_ms=status.oldest_waiting_ms,
            live_ids=status.live_ids,
            sticky_entries=sticky_entries,
            admitted={str(reason): count for reason, count in self.admitted.items()},
            refused={str(reason): count for reason, count in self.refused.items()},
            closed=dict(self.closed),
            would_refuse=self.would_refuse,
            outcomes=dict(zip(OUTCOMES, (sum(self.waited_ms_buckets.values()), self.gave_up), strict=True)),
            waited_ms_buckets=dict(self.waited_ms_buckets),
            waited_ms_sum=self.waited_ms_sum,
            unused_ids=self.unused_ids,
            inits_refused=self.inits_refused,
            inits_would_refuse=self.inits_would_refuse,
            inits_failed_open=self.inits_failed_open,
            bytes=dict(zip(DIRECTIONS, (self.bytes_in, self.bytes_out), strict=True)),
            new_1h=sum(self.new_by_minute.of_hour(now_ms)),
            refused_1h=sum(self.refused_by_minute.of_hour(now_ms)),
        )


@dataclass(frozen=True, slots=True)
class UserSnapshot:
    """One user now, for metrics and pages.

    rate_milli          the quota in thousandths of an id per window, None without a limit
    tokens              of the user's bucket, below 0 while throttling (KIP-936), None without a limit
    admitted_per_s      new ids (KIP-936 `rate`)
    states_tokens       those of producer states; None: no rate
    throttle_time_ms    average of the latest refusals (KIP-936 `throttle-time`)
    waiting             ids in line; `oldest_waiting_ms` since the first refusal of the one that waits longest
    admitted            ids by reason; `refused`: requests by reason; `closed`: connections by reason
    would_refuse        ids let pass that enforcing would have refused
    outcomes            admitted_after_waiting, gave_up
    waited_ms_buckets   count by upper bound in ms, not cumulative
    unused_ids          allocated, and not produced with by the time their connection closed
    inits_refused       InitProducerId requests refused; `inits_would_refuse`: that enforcing would have refused
    inits_failed_open   InitProducerId requests that passed because the quota raised an error
    bytes               of the user's connections after the login, by direction
    new_1h, refused_1h  new ids, and refused requests, of the last hour
    """

    user: User
    enforces: bool
    exempt: bool
    rate_milli: int | None
    tokens: float | None
    admitted_per_s: float
    throttle_time_ms: float
    waiting: int
    oldest_waiting_ms: int
    live_ids: int
    sticky_entries: int
    admitted: Mapping[str, int]
    refused: Mapping[str, int]
    closed: Mapping[str, int]
    would_refuse: int
    outcomes: Mapping[str, int]
    waited_ms_buckets: Mapping[int, int]
    waited_ms_sum: int
    unused_ids: int
    inits_refused: int = 0
    inits_would_refuse: int = 0
    inits_failed_open: int = 0
    bytes: Mapping[str, int] = field(default_factory=dict)
    states_tokens: float | None = None
    new_1h: int = 0
    refused_1h: int = 0


class UserCountersTable:
    """Counters of all users of one process."""

    def __init__(self) -> None:
        self._users: dict[User, UserCounters] = {}
        self._portions = Portions[User]()

    def of(self, user: User, now_ms: int) -> UserCounters:
        """Return the user's counters, to count something now. Beyond MOST_USERS, newcomers are counted together."""
        counters = self._users.get(user)
        if counters is None:
            user = table_key(user, self._users)
            counters = self._users.get(user)
        if counters is None:
            counters = self._users[user] = UserCounters()
        counters.last_ms = now_ms
        return counters

    def count_bytes(self, user: User, bytes_in: int, bytes_out: int, now_ms: int) -> None:
        counters = self.of(user, now_ms)
        counters.bytes_in += bytes_in
        counters.bytes_out += bytes_out

    def find(self, user: User) -> UserCounters | None:
        """Return the user's counters, read-only; None when nothing was counted."""
        return self._users.get(user)

    def users(self, *, since_ms: int = 0) -> dict[User, UserCounters]:
        """Return the users with a count since that time."""
        return {user: counters for user, counters in self._users.items() if counters.last_ms >= since_ms}

    def drop_idle(self, known: Collection[User], now_ms: int) -> None:
        """Drop counters idle for COUNTERS_KEPT_MS, of the next portion, unless the user is among the `known`."""
        for user, counters in self._portions.of(self._users):
            if user not in known and now_ms - counters.last_ms >= COUNTERS_KEPT_MS:
                del self._users[user]


@dataclass(frozen=True, slots=True)
class UserStatus:
    """One user's state at one moment; the defaults are those of an unknown user.

    `tokens`: below 0 while throttled, None without a limit; `waiting`: ids in the queue; `oldest_waiting_ms`: age of
    its longest wait; `live_ids`: distinct ids remembered; `states_tokens`: of producer states, None without a rate.
    """

    tokens: float | None = None
    waiting: int = 0
    oldest_waiting_ms: int = 0
    live_ids: int = 0
    states_tokens: float | None = None


MOST_OWNED_IDS: Final = 40_000
"""About 2.5 MB, in two dicts just below the size at which they double; forty blocks of 1,000 (KIP-730)."""


class Owner(NamedTuple):
    """The user an id was given to, its latest known epoch, and whether a Produce with it was seen."""

    user: User
    epoch: int
    produced: bool = False


@lru_cache(maxsize=4_096)
def _shared(owner: Owner) -> Owner:
    """Return one object for all ids with equal owners: saves most of the table's memory."""
    return owner


class ProducerIdOwners:
    """Owners by producer id, and the ids given on each connection that is open.

    In two generations, each of half the size: when the recent one is full, it becomes the earlier one and that
    is forgotten. So there is no order to be kept for each id.
    """

    def __init__(self) -> None:
        self._recent: dict[int, Owner] = {}
        self._earlier: dict[int, Owner] = {}
        self._given: dict[int, list[int]] = {}

    def learnt(self, user: User, producer_id: int, epoch: int, connection_id: int) -> None:
        """Note that an answer on that connection gave the id to the user, or bumped its epoch."""
        owner = self.owner(producer_id)
        if len(self._recent) >= MOST_OWNED_IDS // 2:
            self._forget_earlier()
        if owner is None:
            self._given.setdefault(connection_id, []).append(producer_id)
        self._earlier.pop(producer_id, None)
        self._recent[producer_id] = _shared(Owner(user, epoch, owner is not None and owner.produced))

    def note_produced(self, producer_id: int) -> None:
        """Note a Produce request with the id, on any connection."""
        for generation in (self._recent, self._earlier):
            owner = generation.get(producer_id)
            if owner is not None and not owner.produced:
                generation[producer_id] = _shared(Owner(owner.user, owner.epoch, True))

    def owner(self, producer_id: int) -> Owner | None:
        return self._recent.get(producer_id) or self._earlier.get(producer_id)

    def connection_closed(self, connection_id: int) -> dict[User, int]:
        """Return how many ids given on it were never used, by user; ids beyond the table are not counted."""
        unused: dict[User, int] = {}
        for producer_id in self._given.pop(connection_id, ()):
            owner = self.owner(producer_id)
            if owner is not None and not owner.produced:
                unused[owner.user] = unused.get(owner.user, 0) + 1
        return unused

    def _forget_earlier(self) -> None:
        """A connection's list is bounded with the table: one connection may be given millions."""
        self._earlier, self._recent = self._recent, {}
        for connection_id, given in list(self._given.items()):
            kept = [producer_id for producer_id in given if producer_id in self._earlier]
            if kept:
                self._given[connection_id] = kept
            else:
                del self._given[connection_id]


MOST_EXPLAINED: Final = 10_000
"""Ids of all users together: about 5 MB. The longest unseen is forgotten first."""
MOST_USERS_EXPLAINED: Final = 10_000
"""A user with many refused ids pushes out other users' ids, but no other user's last refusal."""
MOST_RELEASED: Final = 10_000
"""Released ids that have not come back; the oldest release is forgotten first."""


@dataclass(slots=True)
class Refusal:
    """The last refusal of one producer id. Times are monotonic milliseconds.

    rate_milli   the bound that refused it, in thousandths of an id per window
    until_ms     end of the throttle in the answer
    """

    producer_id: int
    reason: Reason
    bound: Bound
    rate_milli: int | None
    refused_ms: int
    until_ms: int
    queue_position: int | None


class RefusedIds:
    """Refusals by user and id, in the order of the latest one."""

    __slots__ = ("_ids", "_of_user", "released")

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[User, int], Refusal] = OrderedDict()
        self._of_user: OrderedDict[User, Refusal] = OrderedDict()
        self.released: OrderedDict[tuple[User, int], None] = OrderedDict()
        """Ids released by an operator that have not come back, by user and id."""

    def note_refusal(self, user: User, refusal: Refusal) -> None:
        """Note a refusal, the user's last one."""
        key = user, refusal.producer_id
        self._ids[key] = refusal
        self._ids.move_to_end(key)
        if len(self._ids) > MOST_EXPLAINED:
            self._ids.popitem(last=False)
        self._of_user[user] = refusal
        self._of_user.move_to_end(user)
        if len(self._of_user) > MOST_USERS_EXPLAINED:
            self._of_user.popitem(last=False)

    # Explanations

    def of_user(self, user: User) -> Refusal | None:
        """Return the user's last refusal, of any id."""
        return self._of_user.get(user)

    def of_id(self, user: User, producer_id: int) -> Refusal | None:
        """Return the id's last refusal."""
        return self._ids.get((user, producer_id))

    # Releases

    def release(self, user: User, producer_id: int) -> None:
        """Have the id admitted uncharged when it comes back, once."""
        self.released[user, producer_id] = None
        if len(self.released) > MOST_RELEASED:
            self.released.popitem(last=False)
