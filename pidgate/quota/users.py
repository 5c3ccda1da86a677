"""All users: filters, bucket and queue of each, the grace of a cold start, the cluster's bucket, expiry. PURE.

A user's quota in force is resolved once per change. Decisions are in producer_ids.py, restoring is in restoring.py.
Must not know questions.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final

from pidgate.quota.counters import RefusedIds, UserStatus
from pidgate.quota.decisions import NO_PRODUCER_ID, Bound, GaveUp, Reason
from pidgate.quota.entities import (
    OTHER_USERS,
    EffectiveQuota,
    Portions,
    User,
    account_of,
    client_accounts,
    has_room_for_user,
    limits_states,
    limits_transactional_ids,
    may_refuse,
    owner_of,
    resolve,
)
from pidgate.quota.layered_filter import FilterBudget, LayeredFilter, Sighting, kept_ms
from pidgate.quota.retry_queue import FORGOTTEN_AFTER_MS, RetryQueue
from pidgate.quota.settings import ProducerIdSettings, Quotas
from pidgate.quota.token_bucket import TokenBucket

_FLOOR_WITHOUT_LIMIT = 1_000

BROUGHT_WITHIN_MS = 5_000
"""Time from the answer with an id to its first batch: a producer with data to send needs less. A slower one has no
token reserved.
"""


GRACE_TIMES_RATE = 10
"""Bound of one user's ids, in windows of its rate."""


_MANY: Final = 1 << 62
"""Ids left of a grace of a user without a rate."""


class Grace:
    """The grace of a cold start. `until_ms` is 0 when there is none."""

    __slots__ = ("until_ms",)

    def __init__(self) -> None:
        self.until_ms = 0

    def ids_left(self, quota: EffectiveQuota, rate_milli: int | None, admitted: int, now_ms: int) -> int:
        """Return how many more unseen ids are admitted uncharged of a user with this rate (None: without limit).

        `admitted`: so far. A grace set for the user replaces the cold start's. A rate of 0 blocks under grace, too.
        """
        times_milli = quota.grace_milli
        if times_milli is None:
            times_milli = GRACE_TIMES_RATE * 1000 if now_ms < self.until_ms else 0
        if rate_milli is None:
            return _MANY if times_milli else 0
        return max(0, -(-times_milli * rate_milli // 1_000_000) - admitted)

    def end_if_over(self, now_ms: int) -> None:
        if now_ms >= self.until_ms:
            self.until_ms = 0


REMEMBER_MS: Final = 604_800_000
"""The brokers' transactional.id.expiration.ms."""


def remembering(settings: ProducerIdSettings) -> ProducerIdSettings:
    """Return the settings of filters that hold transactional ids."""
    return replace(settings, remember_ms=REMEMBER_MS)


class RatedKeys:
    """Filter and bucket of a user's transactional ids, or of its pairs of producer id and partition.

    The bucket outlives a removed rate, as that of producer ids.

    `grace_admitted`: ids admitted as grace.
    """

    __slots__ = ("bucket", "filter", "grace_admitted")

    def __init__(self, ids: LayeredFilter) -> None:
        self.filter = ids
        self.bucket: TokenBucket | None = None
        self.grace_admitted = 0

    def units(self, now_ms: int) -> int | None:
        """Return the balance in units of a token; None without a bucket."""
        return None if self.bucket is None else self.bucket.units(now_ms)

    def spend(self, reason: Reason, now_ms: int) -> None:
        """Charge a key that was admitted for `reason`, here or elsewhere."""
        if self.bucket is None:
            return
        if reason is Reason.FIRST_SEEN:
            self.bucket.charge_elsewhere(now_ms)  # never a debt of more than a full bucket
        elif reason in (Reason.OBSERVE, Reason.RESTORING):
            self.bucket.charge_floored(now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Return whether there is no state to keep."""
        return (self.bucket is None or self.bucket.is_full(now_ms)) and self.filter.is_empty(now_ms)


class LiveUser:
    """Filters, bucket and queue of one user. The bucket outlives a removed rate, and returns with its balance.

    No client uses one id with and without transactions. So each use has a filter of its own, and ids that pass
    unrefused in transactions never make an id known for plain use. An account of a client id uses its user's filters,
    so an id stays known when the file gives its client id a rate.

    active_bucket      the bucket, if a rate above 0 is in force
    blocked_by         the rate of 0 that refuses all new ids, the user's or the cluster's
    refuses_plain      whether a Produce request without transactions may be refused for a new id
    refuses_transactional  the same with transactions
    floor              least design count of a new filter layer
    given              times of ids given by InitProducerId and not charged yet
    grace_admitted     ids admitted as grace
    pairs              None before the first one under a rate; an account of a client id has its user's
    origin             address of the user's first request; None: the user was first known from state or other gateways
    restored_ms        time of the restored balance; None: none was restored
    rehearsed          see UserTable.charge_observed
    transactional_ids  None before the first one under a rate
    """

    __slots__ = (
        "active_bucket",
        "blocked_by",
        "bucket",
        "filter",
        "floor",
        "given",
        "grace_admitted",
        "is_changed",
        "is_of_client_id",
        "origin",
        "pairs",
        "pairs_floor",
        "queue",
        "quota",
        "refuses_plain",
        "refuses_transactional",
        "rehearsed",
        "restored_ms",
        "transactional_filter",
        "transactional_floor",
        "transactional_ids",
    )

    def __init__(
        self,
        user: User,
        quotas: Quotas,
        ids: LayeredFilter,
        transactional_ids: LayeredFilter,
    ) -> None:
        self.use_filters(ids, transactional_ids)
        self.is_of_client_id = owner_of(user)[1] is not None
        self.transactional_ids: RatedKeys | None = None
        self.pairs: RatedKeys | None = None
        self.queue = RetryQueue(quotas.producer_ids.queue)
        self.bucket: TokenBucket | None = None
        self.active_bucket: TokenBucket | None = None
        self.rehearsed: TokenBucket | None = None
        self.given: deque[int] = deque()
        self.grace_admitted = 0
        self.origin: str | None = None
        self.restored_ms: int | None = None
        self.is_changed = True
        """The balance has changed without an insertion into a filter."""
        self.resolve_quota(user, quotas)

    def use_filters(self, ids: LayeredFilter, transactional_ids: LayeredFilter) -> None:
        self.filter = ids
        self.transactional_filter = transactional_ids

    def resolve_quota(self, user: User, quotas: Quotas) -> None:
        """Resolve the user's quota in force, once per change. `UserTable.shape_bucket` does the same for the bucket."""
        self.is_changed = True
        settings = quotas.producer_ids
        self.quota = quota = resolve(quotas, user)
        self.refuses_plain = may_refuse(quotas, quota, transactional=False)
        self.refuses_transactional = may_refuse(quotas, quota, transactional=True)
        self.blocked_by: Bound | None = None
        if quota.rate_milli == 0 or quota.states_rate_milli == 0:
            self.blocked_by = Bound.USER
        elif quotas.cluster_rate_milli == 0:
            self.blocked_by = Bound.CLUSTER
        self.queue.limit = settings.queue
        self.floor = layer_floor(quota.rate_milli, settings)
        self.transactional_floor = layer_floor(quota.transactional_ids_rate_milli, settings)
        self.pairs_floor = layer_floor(quota.states_rate_milli, settings)

    def given_lately(self, now_ms: int) -> int:
        """Count the ids given within BROUGHT_WITHIN_MS and not used yet."""
        given = self.given
        while given and now_ms - given[0] >= BROUGHT_WITHIN_MS:
            given.popleft()
        return len(given)

    def units(self, now_ms: int) -> int | None:
        """Return the balance in units of a token; None without a limit."""
        bucket = self.active_bucket
        return bucket.units(now_ms) if bucket else None

    def ids(self, *, transactional: bool) -> LayeredFilter:
        """Return the filter of ids for that use."""
        return self.transactional_filter if transactional else self.filter

    @property
    def filters(self) -> tuple[LayeredFilter, ...]:
        """Its own filters: that of ids in plain use, and that of ids in transactions."""
        return () if self.is_of_client_id else (self.filter, self.transactional_filter)

    def all_filters(self) -> Iterator[LayeredFilter]:
        """Yield the filters of producer ids, and the one of transactional ids if there is one."""
        yield from self.filters
        if self.transactional_ids is not None:
            yield self.transactional_ids.filter

    def begin_grace(self) -> None:
        """Count the ids of a grace that an operator set for the user from 0."""
        self.grace_admitted = 0
        if self.transactional_ids is not None:
            self.transactional_ids.grace_admitted = 0

    def needs_saving(self) -> bool:
        """Return whether state of a snapshot has changed since `mark_saved`."""
        return self.is_changed or any(ids.is_changed for ids in self.all_filters())

    def mark_saved(self) -> None:
        """Note that a snapshot holds the user as it is now."""
        self.is_changed = False
        for ids in self.all_filters():
            ids.is_changed = False

    def clear(self) -> None:
        """Forget all ids."""
        for ids in self.all_filters():
            ids.clear()
        if self.pairs is not None and not self.is_of_client_id:
            self.pairs.filter.clear()

    @property
    def pairs_bucket(self) -> TokenBucket | None:
        """The bucket of pairs, if a rate of them is in force."""
        return None if self.pairs is None or not self.quota.states_rate_milli else self.pairs.bucket

    def sight(self, producer_id: int, now_ms: int, *, transactional: bool = False) -> Sighting:
        """Look the id up in the filter of that use."""
        return self.ids(transactional=transactional).find(producer_id, now_ms)


def layer_floor(rate_milli: int | None, settings: ProducerIdSettings) -> int:
    """Return the least design count of a layer: its part of the ids that the quota may admit."""
    if rate_milli is None:
        return _FLOOR_WITHOUT_LIMIT
    per_layer = rate_milli * settings.burst / (1000 * settings.layers)
    return -(-per_layer.numerator // per_layer.denominator)


class UserTable:
    """The state of all users. `secret_source` returns 128 random bits: they are drawn for each filter.

    `cluster`: the bucket above all users; None without a common rate, or when it is 0. `cluster_rehearsed`: see
    `charge_observed`.
    """

    def __init__(self, quotas: Quotas, secret_source: Callable[[], int], now_ms: int) -> None:
        self.quotas = quotas
        self.counts_pairs = limits_states(quotas)
        """Whether a rate of producer states is set for any user."""
        self._apply_settings(quotas.producer_ids)
        self.grace = Grace()
        self.cluster: TokenBucket | None = None
        self.cluster_rehearsed: TokenBucket | None = None
        self._secret_source = secret_source
        self._budget = FilterBudget(quotas.producer_ids)
        self._users: dict[User, LiveUser] = {}
        self._of_origin: Counter[str | None] = Counter()
        self._portions = Portions[User]()
        self._gave_up: list[GaveUp] = []
        self.refusals = RefusedIds()
        self._shape_cluster(now_ms)

    # Settings and time

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """Apply new quotas to every user: buckets keep their fraction, filters and queues their contents."""
        before, self.quotas = self.quotas, quotas
        self.counts_pairs = limits_states(quotas)
        if quotas.producer_ids != before.producer_ids:
            self._apply_settings(quotas.producer_ids)
            self._reshape_filters(now_ms)
        self._shape_cluster(now_ms)
        for user, live in self._users.items():
            had_grace = live.quota.grace_milli
            live.resolve_quota(user, quotas)
            if live.quota.grace_milli and not had_grace:
                live.begin_grace()
            self.shape_bucket(live, now_ms)

    def _apply_settings(self, settings: ProducerIdSettings) -> None:
        self.kept_ms = kept_ms(settings)
        self._transactional_settings = remembering(settings)

    def _reshape_filters(self, now_ms: int) -> None:
        settings = self.quotas.producer_ids
        self._budget.reshape(settings)
        for live in self._users.values():
            for ids in live.filters:
                ids.reshape(settings, now_ms)
            if live.transactional_ids is not None:
                live.transactional_ids.filter.reshape(self._transactional_settings, now_ms)
            if live.pairs is not None and not live.is_of_client_id:
                live.pairs.filter.reshape(settings, now_ms)

    @property
    def history_ms(self) -> int:
        """How far back (ms) a history must reach to contain all remembered ids."""
        is_limited = limits_transactional_ids(self.quotas)
        return max(self.kept_ms, kept_ms(self._transactional_settings)) if is_limited else self.kept_ms

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Drop the users of the next portion that have no state; return the ids that gave up since the last sweep."""
        self.grace.end_if_over(now_ms)
        for user, live in self._portions.of(self._users):
            self.drop_given_up(user, live, now_ms)
            bucket_is_full = live.bucket is None or live.bucket.is_full(now_ms)
            counts_grace = bool(live.grace_admitted and (self.grace.until_ms or live.quota.grace_milli))
            is_idle = not live.queue.waiting and not live.given_lately(now_ms)
            nothing_known = all([ids.is_empty(now_ms) for ids in live.filters]) and (
                live.transactional_ids is None or live.transactional_ids.is_idle(now_ms)
            )
            nothing_known &= live.is_of_client_id or live.pairs is None or live.pairs.is_idle(now_ms)
            is_shared = any(account in self._users for account in self._client_accounts(user))
            if bucket_is_full and is_idle and not counts_grace and nothing_known and not is_shared:
                self._remove(user)
        gave_up, self._gave_up = self._gave_up, []
        return gave_up

    def drop_given_up(self, user: User, live: LiveUser, now_ms: int) -> None:
        """Drop the queued ids not seen again in time; `sweep` returns them."""
        patience_ms = self.quotas.producer_ids.max_throttle_ms + FORGOTTEN_AFTER_MS
        for waiting in live.queue.drop_unseen_since(now_ms - patience_ms):
            waited_ms = waiting.last_seen_ms - waiting.first_refused_ms
            producer_id = max(NO_PRODUCER_ID, waiting.producer_id)
            gave_up = GaveUp(owner_of(user)[0], producer_id, waited_ms, waiting.attempts)
            self._gave_up.append(gave_up)

    # Users

    def live(self, user: User, now_ms: int, origin: str | None = None) -> LiveUser:
        """Return the user's state, created when there is none.

        Without room for a newcomer of this origin, it shares the account of OTHER_USERS.
        """
        live = self._users.get(user)
        if live is None and not self._has_room(user, origin):
            user = OTHER_USERS
            live = self._users.get(user)
        if live is None:
            live = self.new(user, (self._secret_source(), self._secret_source()), now_ms)
            live.origin = origin
            self._add(user, live)
            self.shape_bucket(live, now_ms)
        return live

    def _has_room(self, user: User, origin: str | None) -> bool:
        """Return whether the table has an account for one more user. Users that the quotas name always have one."""
        is_named = owner_of(user)[0] in self.quotas.users
        return is_named or has_room_for_user(self._of_origin[origin], len(self._users))

    def account(self, user: User, client_id: str) -> User:
        """Return the account that pays for new producer ids of this client."""
        return account_of(self.quotas, user, client_id)

    def _client_accounts(self, user: User) -> Collection[User]:
        return client_accounts(self.quotas, user).values()

    def _add(self, user: User, live: LiveUser) -> None:
        self._users[user] = live
        for account in self._client_accounts(user):
            if account in self._users:
                self._users[account].use_filters(*live.filters)
                self._users[account].pairs = live.pairs
        self._of_origin[live.origin] += 1

    def _remove(self, user: User) -> LiveUser | None:
        live = self._users.pop(user, None)
        if live is not None:
            self._of_origin[live.origin] -= 1
            if not self._of_origin[live.origin]:
                del self._of_origin[live.origin]
        return live

    def new(self, user: User, secrets: tuple[int, int], now_ms: int) -> LiveUser:
        """Make a user without bucket that is not in the table yet. `secrets`: of `LiveUser.filters`."""
        owner, client_id = owner_of(user)
        if client_id is not None:
            of_user = self.live(owner, now_ms)
            account = LiveUser(user, self.quotas, of_user.filter, of_user.transactional_filter)
            account.pairs = of_user.pairs
            return account
        settings = self.quotas.producer_ids
        ids, transactional_ids = (LayeredFilter(settings, self._budget, secret) for secret in secrets)
        return LiveUser(user, self.quotas, ids, transactional_ids)

    def transactional_ids(self, live: LiveUser, now_ms: int, secret: int | None = None) -> RatedKeys:
        """Return the user's transactional ids, made when there are none. `secret`: of a filter to be restored."""
        if live.transactional_ids is None:
            secret = self._secret_source() if secret is None else secret
            ids = LayeredFilter(self._transactional_settings, self._budget, secret)
            live.transactional_ids = RatedKeys(ids)
            self.shape_bucket(live, now_ms)
        return live.transactional_ids

    def pairs(self, user: User, live: LiveUser, now_ms: int) -> RatedKeys:
        """Return the user's pairs of producer id and partition, made when there are none, for all of its accounts."""
        if live.pairs is None:
            ids = LayeredFilter(self.quotas.producer_ids, self._budget, self._secret_source())
            pairs = RatedKeys(ids)
            for account in (user, *self._client_accounts(user)):
                if account in self._users:
                    self._users[account].pairs = pairs
            live.pairs = pairs
            self.shape_bucket(live, now_ms)
        return live.pairs

    def replace(self, user: User, live: LiveUser, now_ms: int) -> None:
        """Insert the user, replacing its earlier state."""
        self.shape_bucket(live, now_ms)
        replaced = self._remove(user)
        if replaced is not None:
            replaced.clear()
        self._add(user, live)

    def rename(self, name: User, user: User, now_ms: int) -> None:
        """Move the state kept under `name` to `user`; existing state of `user` stays."""
        live = self._remove(name)
        if live is None:
            return
        if user in self._users:
            live.clear()
        else:
            live.resolve_quota(user, self.quotas)
            self.replace(user, live, now_ms)

    # Buckets

    def shape_bucket(self, live: LiveUser, now_ms: int) -> None:
        """Fit the user's bucket to its rate."""
        if live.quota.rate_milli:
            live.bucket = self._shaped(live.bucket, live.quota.rate_milli, now_ms)
            if live.rehearsed is not None:
                live.rehearsed = self._shaped(live.rehearsed, live.quota.rate_milli, now_ms)
        live.active_bucket = live.bucket if live.quota.rate_milli else None
        rate_milli = live.quota.transactional_ids_rate_milli
        if rate_milli and live.transactional_ids is not None:
            bucket = live.transactional_ids.bucket
            live.transactional_ids.bucket = self._shaped(bucket, rate_milli, now_ms)
        if live.quota.states_rate_milli and live.pairs is not None:
            live.pairs.bucket = self._shaped(live.pairs.bucket, live.quota.states_rate_milli, now_ms)

    def set_cluster(self, bucket: TokenBucket, rehearsed: TokenBucket | None, now_ms: int) -> None:
        """Replace the cluster's bucket, and the one that counts observed ids too."""
        self.cluster, self.cluster_rehearsed = bucket, rehearsed
        self._shape_cluster(now_ms)

    def _shape_cluster(self, now_ms: int) -> None:
        rate_milli = self.quotas.cluster_rate_milli
        self.cluster = self._shaped(self.cluster, rate_milli, now_ms) if rate_milli else None
        rehearsed = self.cluster_rehearsed
        self.cluster_rehearsed = self._shaped(rehearsed, rate_milli, now_ms) if rate_milli else None

    def _shaped(self, bucket: TokenBucket | None, rate_milli: int, now_ms: int) -> TokenBucket:
        settings = self.quotas.producer_ids
        if bucket is None:
            return TokenBucket(rate_milli, settings.window_ms, settings.burst, now_ms)
        bucket.reshape(rate_milli, settings.window_ms, settings.burst, now_ms)
        return bucket

    def charge(self, live: LiveUser, spend: Callable[[TokenBucket, int], None], now_ms: int) -> None:
        """Spend a token of the user and one of the cluster, for an id that may be refused.

        `spend` is one of TokenBucket's `charge…` methods.
        """
        if live.given:
            live.given.popleft()
        for bucket in self.spent_buckets(live):
            if bucket is not None:
                spend(bucket, now_ms)
        for bucket in (live.rehearsed, self.cluster_rehearsed):
            if bucket is not None:
                bucket.charge_floored(now_ms)

    def charge_observed(self, live: LiveUser, now_ms: int) -> None:
        """Count an id that is never refused. It takes no token from ids that may be refused.

        Observed ids have buckets of their own, which count as if they were enforced. Only a user without any refusals
        has one bucket for both.
        """
        if live.given and not live.quota.enforces:
            live.given.popleft()
        for bucket in self.observed_buckets(live, now_ms):
            if bucket is not None:
                bucket.charge_floored(now_ms)

    def observed_buckets(self, live: LiveUser, now_ms: int) -> tuple[TokenBucket | None, TokenBucket | None]:
        """Return the user's and the cluster's bucket that count ids which are never refused."""
        own = live.active_bucket
        if own is not None and live.quota.enforces:
            if live.rehearsed is None:
                live.rehearsed = self._shaped(None, own.rate_milli, now_ms)
            own = live.rehearsed
        return own, self.cluster_rehearsed

    def spent_buckets(self, live: LiveUser) -> tuple[TokenBucket | None, TokenBucket | None]:
        """Return the user's and the cluster's bucket that pay for ids which may be refused."""
        return live.active_bucket, self.cluster

    # For metrics and explanations

    def users(self) -> list[User]:
        return list(self._users)

    def find(self, user: User) -> LiveUser | None:
        """Return the user's state, perhaps the one of OTHER_USERS, as `live` does; None when there is none."""
        live = self._users.get(user)
        is_named = owner_of(user)[0] in self.quotas.users
        return self._users.get(OTHER_USERS) if live is None and not is_named else live

    def kept_under(self, name: User) -> LiveUser | None:
        """Return the state under exactly this name, one of `users`; None when it has been dropped."""
        return self._users.get(name)

    def remembers(self, user: User, producer_id: int, now_ms: int, *, transactional: bool = False) -> bool:
        """Return whether the id would be free of charge, in plain use or in transactions."""
        live = self.find(user)
        if live is None:
            return False
        return live.sight(producer_id, now_ms, transactional=transactional) is not Sighting.UNSEEN

    def status(self, user: User, now_ms: int) -> UserStatus:
        """Return the user's tokens, queue and remembered ids."""
        live = self.find(user)
        if live is None:
            return UserStatus()
        bucket, first_ms = live.active_bucket, live.queue.oldest_first_refused_ms()
        return UserStatus(
            bucket.units(now_ms) / bucket.token_units if bucket else None,
            len(live.queue.waiting),
            0 if first_ms is None else now_ms - first_ms,
            sum(ids.live_ids(now_ms) for ids in live.filters),
            pairs.units(now_ms) / pairs.token_units if (pairs := live.pairs_bucket) else None,
        )

    @property
    def filter_bytes(self) -> int:
        """Memory of all filters."""
        return sum(ids.size_bytes for live in self._users.values() for ids in live.all_filters()) + sum(
            live.pairs.filter.size_bytes
            for live in self._users.values()
            if live.pairs is not None and not live.is_of_client_id
        )

    @property
    def filter_entries(self) -> tuple[int, int, int]:
        """Return the entries of all filters, their limit, and the number inserted beyond it."""
        return self._budget.held, self._budget.limit, self._budget.overfull

    @property
    def overfull_inserts(self) -> int:
        """Ids inserted into layers beyond their design count, which misses the false-positive target. Should be 0."""
        return self._budget.overfull
