"""Byte quotas: rates, windows, buckets, throttle times (KIP-13, KIP-219; Kafka's ClientQuotaManager). PURE.

A rate is set on one of Kafka's eight levels. The first level with a rate of the kind wins:
 1 (user, client id), 2 (user, default client), 3 user, 4 (default user, client id), 5 (default user, default client),
 6 default user, 7 client id, 8 default client.

The level also decides which clients share a bucket: on 1, 2, 4 and 5 each (user, client id) has its own, on 3 and 6 all
clients of a user share one, on 7 and 8 all users of a client id do.

A connection gets its ClientSensors once per version of the quotas, and records the bytes of every request. Each bucket
is an account: a window of samples that counts exactly as Kafka does (Sensor, Rate and SampledStat of
org.apache.kafka.common.metrics, in integers), and a debt. Kafka forgets an excess when its sample leaves the window,
and mutes one connection for it. Here the debt stays until it is paid at the rate in force, and every connection of the
bucket waits for that:

  debt := max(debt left + bytes of this record, if there was a debt;
              what the window is above the bound;
              what all bytes so far, paid at the rate since, are above one full window)
  wait := debt / rate

The third term bounds the rate over any time. Without it records of a little more than a window would get 1.7 times
their rate, because the window forgets them after 11 s.

One request that waits passes each time the debt is paid, in the order in which the connections came.

A sample begins with the first record after the sample before it is full (`sample_ms` old). It is dropped `samples` x
`sample_ms` after its last record. The rate is the sum of all samples over the time since the oldest one began. If fewer
than `samples` - 1 full samples exist, the missing ones count as empty.

Must not know bytes on the wire or the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from pidgate.quota.counters import Samples
from pidgate.quota.entities import MOST_USERS, OTHER_USERS, User, id_terms_of, resolve
from pidgate.quota.settings import DEFAULT, ByteEntity, ByteQuotas, Mode, Quotas, QuotasHolder


class Kind(StrEnum):
    """The counted direction: `producer_byte_rate` limits PRODUCE, `consumer_byte_rate` FETCH."""

    PRODUCE = "produce"
    FETCH = "fetch"


BucketName = tuple[str | None, str | None]
"""(user, client id) whose bytes are counted together: Kafka's metric tags. None: any."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A client's bound: its rate, the bucket it is measured in, and the level (1 to 8) that set it."""

    rate_bytes_per_s: int
    bucket: BucketName
    level: int


def resolve_rate(quotas: ByteQuotas, kind: Kind, user: User, client_id: str | None) -> Bound | None:
    """Return the bound of a client; None: nothing limits it.

    A missing client id is the empty one, to which the default client's rates apply.
    """
    client = client_id or DEFAULT
    for level, entity in _levels(user, client):
        rate = rate_of(quotas, kind, entity)
        if rate is not None:
            return Bound(rate, _bucket(level, user, client), level)
    return None


def rate_of_bucket(quotas: ByteQuotas, kind: Kind, bucket: BucketName) -> int | None:
    """Return the rate in force for a bucket, from the levels that share it. Lower levels never apply."""
    user, client = bucket
    levels: tuple[int, ...] = (1, 2, 4, 5)
    if user is None:
        levels = (7, 8)
    elif client is None:
        levels = (3, 6)
    for level, entity in _levels(user, client or DEFAULT):
        if level in levels:
            rate = rate_of(quotas, kind, entity)
            if rate is not None:
                return rate
    return None


def rate_of(quotas: ByteQuotas, kind: Kind, entity: ByteEntity) -> int | None:
    """Return the rate set for exactly this entity, in bytes per second."""
    rates = quotas.rates.get(entity)
    if rates is None:
        return None
    return rates.producer_byte_rate if kind is Kind.PRODUCE else rates.consumer_byte_rate


def throttles_bytes(quotas: Quotas, user: User) -> bool:
    """Return whether bytes of this user may be throttled: its mode enforces, and it is not exempt."""
    if resolve(quotas, user).mode is Mode.OBSERVE:
        return False
    own = quotas.users.get(user)
    return not (quotas.default.exempt_from_bytes or (own is not None and own.exempt_from_bytes))


def terms_of(quotas: Quotas, user: User, client_id: str) -> tuple[object, ...]:
    """Return the terms that decide how long this client waits, to compare before and after a change of quotas."""
    rates = [resolve_rate(quotas.bytes, kind, user, client_id) for kind in Kind]
    return *id_terms_of(quotas, user), throttles_bytes(quotas, user), *rates


def _levels(user: User | None, client: str) -> tuple[tuple[int, ByteEntity], ...]:
    """Entities to look at, in Kafka's order."""
    levels: tuple[tuple[int, ByteEntity], ...] = ((7, (None, client)), (8, (None, DEFAULT)))
    if user is not None:
        levels = (
            (1, (user, client)),
            (2, (user, DEFAULT)),
            (3, (user, None)),
            (4, (DEFAULT, client)),
            (5, (DEFAULT, DEFAULT)),
            (6, (DEFAULT, None)),
            *levels,
        )
    # No client id is named "": its rates are those of the default client.
    return levels if client else tuple(level for level in levels if level[0] not in (1, 4, 7))


def _bucket(level: int, user: User, client: str) -> BucketName:
    if level in (3, 6):
        return (user, None)
    return (None if level >= 7 else user, client)


Sample = tuple[int, int, int]
"""Begin, last record (monotonic ms), and bytes."""


class Window:
    """Samples. A time before the last record counts as the last record's."""

    __slots__ = (
        "_current",
        "_expire_ms",
        "_last_ms",
        "_older",
        "_sample_ms",
        "oldest_ms",
        "start_ms",
        "total",
    )

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._sample_ms = sample_ms
        self._expire_ms = samples * sample_ms
        self._older: deque[Sample] = deque()
        self.total = 0
        """Bytes of all samples that are remembered, as of the last record."""
        self.start_ms, self._last_ms, self._current = _NOTHING
        """Begin of the sample being filled."""
        self.oldest_ms = self.start_ms
        """Begin of the oldest sample."""

    @property
    def last_ms(self) -> int:
        """Time of the last record."""
        return self._last_ms

    def samples(self) -> list[Sample]:
        """Everything that is remembered, oldest first."""
        return [*self._older, (self.start_ms, self._last_ms, self._current)]

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count `size_bytes`; then `total` and `oldest_ms` are up to date."""
        if now_ms < self._last_ms:
            now_ms = self._last_ms
        if now_ms - self.start_ms >= self._sample_ms:
            self._older.append((self.start_ms, self._last_ms, self._current))
            self.start_ms = now_ms
            self._current = 0
            self._forget(now_ms)
        self._current += size_bytes
        self.total += size_bytes
        self._last_ms = now_ms
        older = self._older
        if older and now_ms - older[0][1] >= self._expire_ms:
            self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        older = self._older
        while older and now_ms - older[0][1] >= self._expire_ms:
            self.total -= older.popleft()[2]
        self.oldest_ms = older[0][0] if older else self.start_ms

    def at(self, now_ms: int) -> tuple[int, int | None]:
        """Return the total, and the begin of the oldest sample (None: empty), at a time at which nothing is recorded.
        Changes nothing: reading a metric must not move a window.
        """
        live = [sample for sample in self.samples() if now_ms - sample[1] < self._expire_ms]
        return sum(sample[2] for sample in live), live[0][0] if live else None


_NOTHING: Final[Sample] = (-(1 << 62), -(1 << 62), 0)
"""Earlier than any time: a sample that is full and expired."""


def window_ms(oldest_ms: int, now_ms: int, samples: int, sample_ms: int) -> int:
    """Return the divisor of a sum (Rate.windowSize): at least `samples` - 1 full samples."""
    elapsed_ms = max(0, now_ms - oldest_ms)
    missing = samples - 1 - elapsed_ms // sample_ms
    return elapsed_ms + missing * sample_ms if missing > 0 else elapsed_ms


def throttle_ms(total_bytes: int, over_ms: int, rate_bytes_per_s: int) -> int:
    """QuotaUtils.throttleTime: (O - T) / T x W, rounded half up; 0 at or below the bound. It is not capped.

    With O = total x 1000 / W that is (total x 1000 - T x W) / T, so no fraction is needed.
    """
    return _paid_in_ms(total_bytes * 1_000 - rate_bytes_per_s * over_ms, rate_bytes_per_s)


def _paid_in_ms(debt_milli: int, rate_bytes_per_s: int) -> int:
    """Return the time in which the rate pays a debt in thousandths of a byte, rounded half up."""
    return 0 if debt_milli <= 0 else (2 * debt_milli + rate_bytes_per_s) // (2 * rate_bytes_per_s)


LONGEST_TOLD_MS: Final = 30_000
"""Largest throttle_time_ms. Some clients sleep for the whole of it; the rest of a wait comes with the next request."""


@dataclass(frozen=True, slots=True)
class ByteSnapshot:
    """One bucket now, for metrics and pages.

    user, client_id   whose bytes are counted together; None: any
    rate_bytes_per_s  the bound, 0 without one
    bytes_per_s       now (Kafka's `byte-rate`)
    throttled         requests after which a client had to wait; `would_throttle`: had it been enforced
    throttle_time_ms  average of the latest waits (Kafka's `throttle-time`)
    total_bytes       counted since the bucket was made
    """

    user: str | None
    client_id: str | None
    kind: Kind
    rate_bytes_per_s: int
    bytes_per_s: float
    throttled: int
    would_throttle: int
    throttle_time_ms: float
    total_bytes: int

    @property
    def throttle_time_s(self) -> float:
        return self.throttle_time_ms / 1_000


class Waiter(Protocol):
    """A connection that waits for an account."""

    def wake(self) -> None:
        """Continue with the waiting requests."""

    def await_turn(self, who: object, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a turn of the event loop that the connection's user pays for."""


LEASE_MS: Final = 50
"""Share of a rate that lanes may pass before recording it, which takes a second at most."""


class ByteBucket:
    """An account: its bound, its window, its debt, the connections that wait for it, and its counts.

    waiting   the connections that wait, by id and in order
    turn      the connection that was woken, until it has passed a request
    """

    __slots__ = (
        "_debt_milli",
        "_level_milli",
        "_paid_ms",
        "is_dropped",
        "kind",
        "leased_bytes",
        "made_ms",
        "name",
        "rate_bytes_per_s",
        "sample_ms",
        "samples",
        "throttle_times_ms",
        "throttled",
        "total_bytes",
        "turn",
        "waiting",
        "window",
        "would_throttle",
    )

    def __init__(self, kind: Kind, name: BucketName, quotas: ByteQuotas, now_ms: int) -> None:
        self.kind = kind
        self.name = name
        self.made_ms = now_ms
        self.rate_bytes_per_s: int | None = None
        self.samples = quotas.samples
        self.sample_ms = quotas.sample_ms
        self.window = Window(quotas.samples, quotas.sample_ms)
        self.throttled = 0
        self.would_throttle = 0
        self.throttle_times_ms = Samples()
        self.total_bytes = 0
        self._debt_milli = 0
        self._level_milli = 0
        self._paid_ms = now_ms
        self.waiting: dict[int, Waiter] = {}
        self.turn: int | None = None
        self.leased_bytes = 0
        """Bytes that lanes may pass before they are recorded here."""
        self.is_dropped = False

    @property
    def expire_ms(self) -> int:
        return self.samples * self.sample_ms

    def is_idle(self, now_ms: int, for_ms: int) -> bool:
        """Return whether the account had no record for so long, and has no debt and no waiting connection."""
        counted_ms = max(self.window.last_ms, self.made_ms)
        return now_ms - counted_ms >= for_ms and not self.waiting and not self.wait_ms(now_ms)

    def record(self, size_bytes: int, now_ms: int, *, is_charged: bool = True) -> int:
        """Count the bytes; return the wait (ms) until the debt is paid, 0 for none.

        Uncharged bytes do not change the debt, and the wait is that of the window.
        """
        window = self.window
        window.record(size_bytes, now_ms)
        self.total_bytes += size_bytes
        rate = self.rate_bytes_per_s
        if rate is None:
            return 0
        debt_milli, total_milli = 0, window.total * 1_000
        full_milli = rate * (self.samples - 1) * self.sample_ms
        # The window is never shorter than samples - 1 full ones: most records are not above it.
        if total_milli > full_milli:
            over_ms = window_ms(window.oldest_ms, now_ms, self.samples, self.sample_ms)
            debt_milli = max(0, total_milli - rate * over_ms)
        if is_charged:
            left_milli = self._pay(now_ms)
            if left_milli:
                debt_milli = max(debt_milli, left_milli + size_bytes * 1_000)
            self._level_milli += size_bytes * 1_000
            self._debt_milli = debt_milli = max(debt_milli, self._level_milli - full_milli)
        return _paid_in_ms(debt_milli, rate)

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the debt is paid."""
        rate, debt_milli = self.rate_bytes_per_s, self._pay(now_ms)
        return -(-debt_milli // rate) if rate is not None else 0

    def may_pass(self, connection_id: int, now_ms: int) -> bool:
        """Return whether a request of this connection may pass: no debt is left, and it has the turn or none waits."""
        return not self.wait_ms(now_ms) and (self.turn == connection_id or not self.waiting)

    def end_turn(self) -> None:
        """Note that the connection whose turn it was has passed a request."""
        self.turn = None

    def lease(self, now_ms: int) -> int:
        """Lease some bytes to a lane, which may pass before they are recorded; 0: none. `end_lease` once.

        All leases together are LEASE_MS of the rate, and each is half of what the others leave.
        """
        rate = self.rate_bytes_per_s
        if rate is None or self.waiting or self.wait_ms(now_ms):
            return 0
        leased_bytes = max(0, rate * LEASE_MS // 1000 - self.leased_bytes) // 2
        self.leased_bytes += leased_bytes
        return leased_bytes

    def end_lease(self, leased_bytes: int) -> None:
        """End a lease: what passed is recorded."""
        self.leased_bytes -= leased_bytes

    def set_rate(self, rate_bytes_per_s: int | None, now_ms: int) -> None:
        """Change the bound. The debt was paid at the old one so far. It never exceeds what the window gives at the new.

        So a raised rate ends a wait as at a broker, which knows the window alone.
        """
        if rate_bytes_per_s == self.rate_bytes_per_s:
            return
        debt_milli = self._pay(now_ms)
        self.rate_bytes_per_s = rate_bytes_per_s
        if debt_milli and rate_bytes_per_s is not None:
            total, oldest_ms = self.window.at(now_ms)
            over_ms = window_ms(
                now_ms if oldest_ms is None else oldest_ms, now_ms, self.samples, self.sample_ms
            )
            self._debt_milli = max(0, min(debt_milli, total * 1_000 - rate_bytes_per_s * over_ms))
            full_milli = rate_bytes_per_s * (self.samples - 1) * self.sample_ms
            self._level_milli = min(self._level_milli, full_milli + self._debt_milli)

    def _pay(self, now_ms: int) -> int:
        """Return the debt left, in thousandths of a byte. Without a rate there is none."""
        rate = self.rate_bytes_per_s
        if rate is None:
            self._debt_milli = self._level_milli = 0
        elif self._debt_milli or self._level_milli:
            paid_milli = max(0, now_ms - self._paid_ms) * rate
            self._debt_milli = max(0, self._debt_milli - paid_milli)
            self._level_milli = max(0, self._level_milli - paid_milli)
        self._paid_ms = max(self._paid_ms, now_ms)
        return self._debt_milli

    def bytes_per_s(self, now_ms: int) -> float:
        total, oldest_ms = self.window.at(now_ms)
        if oldest_ms is None:
            return 0.0
        return total * 1_000 / window_ms(oldest_ms, now_ms, self.samples, self.sample_ms)

    def snapshot(self, now_ms: int) -> ByteSnapshot:
        return ByteSnapshot(
            *self.name,
            self.kind,
            self.rate_bytes_per_s or 0,
            self.bytes_per_s(now_ms),
            self.throttled,
            self.would_throttle,
            self.throttle_times_ms.mean(now_ms),
            self.total_bytes,
        )

    def drop(self) -> None:
        self.is_dropped = True


IDLE_MS: Final = 3_600_000
"""After so long without a record a bucket is dropped, as Kafka drops its sensors."""

MAX_CLIENT_BUCKETS: Final = 20_000
"""Clients choose their client ids, which would fill the memory without a bound. The same holds for user names where
brokers accept any name in a token: beyond MOST_USER_BUCKETS users without a rate of their own share a bucket.
"""

MOST_USER_BUCKETS: Final = 2 * MOST_USERS
"""One for each kind."""

_LOOKED_AT: Final = 64
"""Buckets to search for one whose window is empty."""

OTHER_CLIENTS: Final = "(other)"
"""The bucket of a user's clients for which there was no room."""


class ClientSensors:
    """Record one client's bytes against its bucket (KIP-13). `throttles`: the client is made to wait; else only
    counted.
    """

    __slots__ = ("_bound", "_bucket", "_quota", "_user", "kind", "throttles")

    def __init__(self, quota: ByteQuota, kind: Kind, user: User, bound: Bound, throttles: bool) -> None:
        self._quota = quota
        self.kind = kind
        self._user = user
        self._bound = bound
        # Most clients only produce, or only fetch: a bucket is made when something is counted.
        self._bucket: ByteBucket | None = None
        self.throttles = throttles

    def record(self, size_bytes: int, now_ms: int) -> int:
        """Count the bytes of a request or an answer; return throttle_time_ms, 0 for none.

        Also 0 for observed clients. A changed bound applies immediately.
        """
        bucket = self.bucket(now_ms)
        wait_ms = bucket.record(size_bytes, now_ms, is_charged=self.throttles)
        if not wait_ms:
            return 0
        if not self.throttles:
            bucket.would_throttle += 1
            return 0
        told_ms = min(wait_ms, LONGEST_TOLD_MS)
        bucket.throttled += 1
        bucket.throttle_times_ms.record(told_ms, now_ms)
        return told_ms

    def told_ms(self, now_ms: int) -> int:
        """Return the throttle_time_ms of a request that has to wait."""
        return max(1, min(self.bucket(now_ms).wait_ms(now_ms), LONGEST_TOLD_MS))

    def count(self, size_bytes: int, now_ms: int) -> None:
        """Count bytes of a request that is not whole yet: `record` says what they cost."""
        self.bucket(now_ms).record(size_bytes, now_ms, is_charged=self.throttles)

    def bucket(self, now_ms: int) -> ByteBucket:
        """Return the account that pays, made when there is none."""
        quota, bucket = self._quota, self._bucket
        if quota.version != quota.in_force.version:
            quota.follow_quotas(now_ms)
        if bucket is None or bucket.is_dropped:
            bucket = self._bucket = quota.bucket(self.kind, self._user, self._bound, now_ms)
        return bucket

    @property
    def window_bytes(self) -> int:
        """Bytes allowed in the whole window, at least 1: more at once is throttled for certain (Kafka's
        maxValueInQuotaWindow).
        """
        return max(1, self._quota.in_whole_window(self._bound.rate_bytes_per_s))


class ByteQuota:
    """All buckets."""

    def __init__(self, in_force: QuotasHolder, *, max_client_buckets: int = MAX_CLIENT_BUCKETS) -> None:
        self.in_force = in_force
        self.version = in_force.version
        self._shape = in_force.value.bytes
        self._max_client_buckets = max_client_buckets
        self._of_clients: dict[tuple[Kind, BucketName], ByteBucket] = {}
        self._of_users: dict[tuple[Kind, BucketName], ByteBucket] = {}
        self.no_room = 0
        """Times a bucket was asked for that there was no room for."""

    @property
    def is_on(self) -> bool:
        """True when a byte rate is set for any user or client."""
        return bool(self.in_force.value.bytes.rates)

    def follow_quotas(self, now_ms: int) -> None:
        """Apply changed bounds to live buckets, which keep counts and debts. A new shape of the window empties them."""
        if self.version == self.in_force.version:
            return
        self.version = self.in_force.version
        before, after = self._shape, self.in_force.value.bytes
        self._shape = after
        if (before.samples, before.sample_ms) != (after.samples, after.sample_ms):
            for bucket in self._buckets():
                bucket.drop()
            self._of_clients.clear()
            self._of_users.clear()
        for bucket in self._buckets():
            bucket.set_rate(rate_of_bucket(after, bucket.kind, bucket.name), now_ms)

    def sensors(self, kind: Kind, user: User, client_id: str | None, now_ms: int) -> ClientSensors | None:
        """Return the client's sensors; None: nothing limits it. Ask again when `in_force.version` has changed."""
        self.follow_quotas(now_ms)
        bound = resolve_rate(self._shape, kind, user, client_id)
        if bound is None:
            return None
        return ClientSensors(self, kind, user, bound, throttles_bytes(self.in_force.value, user))

    def in_whole_window(self, rate_bytes_per_s: int) -> int:
        """Bytes that a rate allows in all full samples of a window."""
        shape = self._shape
        return rate_bytes_per_s * (shape.samples - 1) * shape.sample_ms // 1_000

    def bucket(self, kind: Kind, user: User, bound: Bound, now_ms: int) -> ByteBucket:
        """Return the bucket of a bound, made when there is none."""
        self.follow_quotas(now_ms)
        name = bound.bucket
        table = self._of_users if name[1] is None else self._of_clients
        found = table.get((kind, name))
        if found is not None:
            return found
        # Not the bound's own rate: its sensors may have been returned before the quotas changed.
        rate = rate_of_bucket(self._shape, kind, name)
        if table is self._of_clients and not self._has_room(now_ms):
            # Further client ids share one bucket of their user, so a user gains nothing by making up client ids.
            # Failing open would reward it, and one bucket for all users would punish the others.
            self.no_room += 1
            table = self._of_users
            name = (user, OTHER_CLIENTS)
        if table is self._of_users:
            name = self._of_user(name)
            found = table.get((kind, name))
            if found is not None:
                found.set_rate(max(found.rate_bytes_per_s or 0, rate or 0) or None, now_ms)
                return found
        made = ByteBucket(kind, name, self._shape, now_ms)
        made.rate_bytes_per_s = rate
        table[kind, name] = made
        return made

    def _of_user(self, name: BucketName) -> BucketName:
        """Return the name under which a user's bucket is kept: that of all other users if there is no room."""
        has_room = len(self._of_users) < MOST_USER_BUCKETS or (name[0], None) in self._shape.rates
        return name if has_room else (OTHER_USERS, name[1])

    def sweep(self, now_ms: int) -> None:
        """Drop buckets idle for an hour and without a debt. To be called about once a minute."""
        for table in (self._of_clients, self._of_users):
            for key in [key for key, bucket in table.items() if bucket.is_idle(now_ms, IDLE_MS)]:
                table.pop(key).drop()

    def snapshots(self, now_ms: int) -> Iterator[ByteSnapshot]:
        """Yield every bucket that has a bound now; bytes may be counted in between."""
        self.follow_quotas(now_ms)
        for bucket in list(self._buckets()):
            if bucket.rate_bytes_per_s is not None:
                yield bucket.snapshot(now_ms)

    def _buckets(self) -> Iterator[ByteBucket]:
        yield from self._of_clients.values()
        yield from self._of_users.values()

    def _has_room(self, now_ms: int) -> bool:
        """Return whether there is room for one more client, after dropping an empty bucket if necessary."""
        table = self._of_clients
        if len(table) < self._max_client_buckets:
            return True
        for _ in range(min(_LOOKED_AT, len(table))):
            key = next(iter(table))
            bucket = table.pop(key)
            if bucket.is_idle(now_ms, bucket.expire_ms):
                bucket.drop()
                return True
            table[key] = bucket  # moved to the end: the next search begins where this one ended
        return False
