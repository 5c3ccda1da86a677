"""All users: filter, bucket and queue of each, the cluster's bucket, and how they follow settings and time.

Knows no question and decides nothing: what is done to a user stands in producer_ids.py, what is kept over a
restart in restoring.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pidgate.quota.entities import EffectiveQuota, User, resolve
from pidgate.quota.grace import Grace
from pidgate.quota.latest_refusals import LatestRefusals
from pidgate.quota.layered_filter import FilterBudget, LayeredFilter, kept_ms, usable_seed
from pidgate.quota.questions import GaveUp
from pidgate.quota.releases import Releases
from pidgate.quota.retry_queue import FORGOTTEN_AFTER_MS, RetryQueue, Waiting
from pidgate.quota.settings import ProducerIdSettings, Quotas
from pidgate.quota.token_bucket import TokenBucket

_FLOOR_WITHOUT_LIMIT = 1_000

BROUGHT_WITHIN_MS = 5_000
"""From being given an id to the first batch with it: a producer that starts with something to say takes less. Whoever
takes longer has no token kept for it.
"""


class LiveUser:
    """Filter, bucket and queue of one user. The bucket outlives a removed rate, so that it returns as it
    was.

    `floor`: the least design count of a new filter layer; `given`: when ids were given that nothing was charged
    for yet; `grace_admitted`: ids let in as grace; `restored_ms`: the moment of the restored balance, None when
    none was restored.
    """

    __slots__ = ("bucket", "filter", "floor", "given", "grace_admitted", "queue", "quota", "restored_ms")

    def __init__(self, quota: EffectiveQuota, settings: ProducerIdSettings, ids: LayeredFilter) -> None:
        self.filter = ids
        self.queue = RetryQueue(settings.queue)
        self.bucket: TokenBucket | None = None
        self.given: deque[int] = deque()
        self.grace_admitted = 0
        self.restored_ms: int | None = None
        self.take(quota, settings)

    def take(self, quota: EffectiveQuota, settings: ProducerIdSettings) -> None:
        """The quota in force from now on; the bucket is shaped by who has the time."""
        self.quota = quota
        self.queue.limit = settings.queue
        self.floor = _floor(quota.rate_milli, settings)

    @property
    def active_bucket(self) -> TokenBucket | None:
        """The bucket, if a rate above 0 is in force."""
        return self.bucket if self.quota.rate_milli else None

    def given_lately(self, now_ms: int) -> int:
        """Ids that were given to the user, and will be brought, as it seems."""
        given = self.given
        while given and now_ms - given[0] >= BROUGHT_WITHIN_MS:
            given.popleft()
        return len(given)

    def units(self, now_ms: int) -> int | None:
        """The balance, None without a limit."""
        bucket = self.active_bucket
        return bucket.units(now_ms) if bucket else None


def _floor(rate_milli: int | None, settings: ProducerIdSettings) -> int:
    """A layer's part of what the quota may admit."""
    if rate_milli is None:
        return _FLOOR_WITHOUT_LIMIT
    per_layer = rate_milli * settings.burst / (1000 * settings.layers)
    return -(-per_layer.numerator // per_layer.denominator)


class UserTable:
    """The state of all users. `seed_source` gives random integers: one is drawn for each user's filter."""

    def __init__(self, quotas: Quotas, seed_source: Callable[[], int], now_ms: int) -> None:
        self._take(quotas)
        self._seed_source = seed_source
        self._budget = FilterBudget(quotas.producer_ids)
        self._users: dict[User, LiveUser] = {}
        self._cluster: TokenBucket | None = None
        self._grace = Grace()
        self._gave_up: list[GaveUp] = []
        self.latest_refusals = LatestRefusals()
        self.releases = Releases()
        self.in_fleet = False
        """Whether other gateways are told of what is admitted here. Each layer lives for a slice longer then, as
        an id that was heard of is used elsewhere without a word until that gateway's slice ends.
        """
        self._shape_cluster(now_ms)

    # Settings and time

    def begin_grace(self, until_ms: int) -> None:
        """Until then unseen ids are let in uncharged, of each user at most 10 times its rate."""
        self._grace.until_ms = until_ms

    @property
    def grace_until_ms(self) -> int:
        """0: no grace."""
        return self._grace.until_ms

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """New quotas for everyone: buckets keep their fraction, filters and queues what is in them."""
        if quotas is self._quotas:
            return  # whoever asks this state, and whoever keeps it, are both told, and both tell
        self._take(quotas)
        settings = quotas.producer_ids
        self._budget.reshape(settings)
        self._shape_cluster(now_ms)
        for user, live in self._users.items():
            live.take(resolve(quotas, user), settings)
            live.filter.reshape(settings, now_ms)
            self._shape_bucket(live, now_ms)

    def _take(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._kept_ms = kept_ms(quotas.producer_ids)

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Drops the users of whom nothing is left to know; returns who gave up since the last sweep."""
        self._grace.end_if_over(now_ms)
        for user, live in list(self._users.items()):
            self._drop_given_up(user, live, now_ms)
            bucket_is_full = live.bucket is None or live.bucket.is_full(now_ms)
            counts_grace = bool(live.grace_admitted and self._grace.until_ms)
            is_idle = not live.queue and not live.given_lately(now_ms)
            if bucket_is_full and is_idle and not counts_grace and live.filter.is_empty(now_ms):
                del self._users[user]
        gave_up, self._gave_up = self._gave_up, []
        return gave_up

    def rename(self, name: User, user: User, now_ms: int) -> None:
        """What was kept under another name is this user's; where something is known of the user, that stays."""
        live = self._users.pop(name, None)
        if live is None:
            return
        if user in self._users:
            live.filter.clear()
        else:
            live.take(resolve(self._quotas, user), self._quotas.producer_ids)
            self._shape_bucket(live, now_ms)
            self._users[user] = live

    def _live(self, user: User, now_ms: int) -> LiveUser:
        live = self._users.get(user)
        if live is None:
            live = self._users[user] = self._new(user, usable_seed(self._seed_source()))
            self._shape_bucket(live, now_ms)
        return live

    def _new(self, user: User, seed: int) -> LiveUser:
        """A user without bucket, not yet in the table."""
        settings = self._quotas.producer_ids
        return LiveUser(resolve(self._quotas, user), settings, LayeredFilter(settings, self._budget, seed))

    def _shape_bucket(self, live: LiveUser, now_ms: int) -> None:
        if live.quota.rate_milli:
            live.bucket = self._shaped(live.bucket, live.quota.rate_milli, now_ms)

    def _shape_cluster(self, now_ms: int) -> None:
        rate_milli = self._quotas.cluster_rate_milli
        self._cluster = self._shaped(self._cluster, rate_milli, now_ms) if rate_milli else None

    def _shaped(self, bucket: TokenBucket | None, rate_milli: int, now_ms: int) -> TokenBucket:
        settings = self._quotas.producer_ids
        if bucket is None:
            return TokenBucket(rate_milli, settings.window_ms, settings.burst, now_ms)
        bucket.reshape(rate_milli, settings.window_ms, settings.burst, now_ms)
        return bucket

    def _charge(self, live: LiveUser, spend: Callable[[TokenBucket, int], None], now_ms: int) -> None:
        """Spends a token of the user and one of the cluster, in one of the bucket's ways."""
        if live.given:
            live.given.popleft()
        for bucket in (live.active_bucket, self._cluster):
            if bucket is not None:
                spend(bucket, now_ms)

    def _drop_given_up(self, user: User, live: LiveUser, now_ms: int) -> None:
        patience_ms = self._quotas.producer_ids.max_throttle_ms + FORGOTTEN_AFTER_MS
        for waiting in live.queue.drop_unseen_since(now_ms - patience_ms):
            self._gave_up.append(_gave_up(user, waiting))

    # For metrics, and for whoever asks why

    def find(self, user: User) -> LiveUser | None:
        """What is known of the user, to be read only."""
        return self._users.get(user)

    @property
    def cluster_bucket(self) -> TokenBucket | None:
        """The bucket above all users, to be read only; None when they have no common rate, or it is 0."""
        return self._cluster

    def users(self) -> list[User]:
        return list(self._users)

    def tokens(self, user: User, now_ms: int) -> float | None:
        """Below 0 is the published sign of throttling; None without a limit."""
        live = self._users.get(user)
        bucket = live.active_bucket if live else None
        return bucket.units(now_ms) / bucket.token_units if bucket else None

    def live_ids(self, user: User, now_ms: int) -> int:
        live = self._users.get(user)
        return live.filter.live_ids(now_ms) if live else 0

    def grace_admitted(self, user: User) -> int:
        """Ids of the user let in as grace."""
        live = self._users.get(user)
        return live.grace_admitted if live else 0

    def waiting(self, user: User) -> int:
        """Ids in the user's queue."""
        live = self._users.get(user)
        return len(live.queue) if live else 0

    def oldest_waiting_ms(self, user: User, now_ms: int) -> int:
        """How long the id that waits longest has been waiting; 0 when nobody is."""
        live = self._users.get(user)
        first_ms = live.queue.oldest_first_refused_ms() if live else None
        return 0 if first_ms is None else now_ms - first_ms

    @property
    def filter_bytes(self) -> int:
        return sum(live.filter.size_bytes for live in self._users.values())

    @property
    def overfull_inserts(self) -> int:
        """Ids put into layers beyond their design count: the false-positive target no longer holds. Alarm."""
        return self._budget.overfull


def _gave_up(user: User, waiting: Waiting) -> GaveUp:
    waited_ms = waiting.last_seen_ms - waiting.first_refused_ms
    return GaveUp(user, waiting.producer_id, waited_ms, waiting.attempts)
