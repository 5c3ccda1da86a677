"""The most that quotas allow on the brokers: producer states, and the heap that they take. PURE.

A broker keeps one state for each producer id and partition that it wrote to, on every replica, until
`producer.id.expiration.ms` after the last write. All arithmetic is exact, and each step can be shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final

from pidgate.quota.entities import EffectiveQuota, resolve, shown
from pidgate.quota.grace import GRACE_TIMES_RATE
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas
from pidgate.units import about_size, show_duration, show_milli, show_size

MOST_SHOWN: Final = 10
_ANYBODY: Final = ""
"""A name that nobody has: resolves to what holds for users that are not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Facts about the cluster, which the file does not have.

    partitions_per_id   partitions that one producer writes to
    unnamed_users       users that have no quota of their own
    heap_bytes          what the states may take on one broker; None: not given
    """

    partitions_per_id: int = 50
    replication_factor: int = 3
    brokers: int = 3
    expiry_ms: int = 86_400_000
    bytes_per_state: int = 250
    unnamed_users: int = 1
    heap_bytes: int | None = None


class Unbounded(StrEnum):
    """Reason that nothing bounds a user's ids."""

    OBSERVED = "observed"
    EXEMPT = "exempt"
    NO_LIMIT = "no limit"


_WHY: Final = {
    Unbounded.OBSERVED: "observed, not enforced",
    Unbounded.EXEMPT: "exempt",
    Unbounded.NO_LIMIT: "no limit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`users` users alike: each brings `ids_each` new producer ids at most within the expiry.

    `ids_each` None: no bound of its own; `unbounded` is the reason, or None when the ceiling over all users bounds it.
    """

    who: str
    users: int
    rate_milli: int | None
    ids_each: int | None
    unbounded: Unbounded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """The result. `ids_at_ceiling`: ids of enforced users that `cluster_producer_ids_rate` lets in.

    ids         of all users that something bounds, within the expiry; the other numbers follow from it
    grace_ids   on top of it once after a cold start; 0 when that charges from the first id on, None when users
                without a rate of their own are let in without bound then
    """

    assumed: Assumptions
    shares: Sequence[Share]
    ids_of_users: int | None
    ids_at_ceiling: int | None
    ids: int
    grace_ids: int | None
    transactional_is_bounded: bool

    @property
    def states(self) -> int:
        """States in the whole cluster, on all replicas."""
        return self.ids * self.assumed.partitions_per_id * self.replicas

    @property
    def replicas(self) -> int:
        """Replicas of a partition: at most one on a broker."""
        return min(self.assumed.replication_factor, self.assumed.brokers)

    @property
    def states_per_broker(self) -> int:
        """States on each broker when they are spread evenly; rounded up."""
        return -(-self.states // self.assumed.brokers)

    @property
    def heap_bytes(self) -> int:
        """Heap of the states on each broker."""
        return self.states_per_broker * self.assumed.bytes_per_state

    @property
    def unbounded(self) -> list[Share]:
        return [share for share in self.shares if share.unbounded is not None]

    @property
    def exceeds_heap(self) -> bool:
        """The states take more heap than was given."""
        return self.assumed.heap_bytes is not None and self.heap_bytes > self.assumed.heap_bytes


def ids_at_most(rate_milli: int, ids: ProducerIdSettings, expiry_ms: int) -> int:
    """Return how many new ids a strict bucket lets in within any stretch of `expiry_ms`.

    burst x rate + rate x expiry / window, and one more, as the balance may end just below 0; 0 at a rate of 0.
    """
    if rate_milli == 0:
        return 0
    windows = ids.burst + Fraction(expiry_ms, ids.window_ms)
    return int(Fraction(rate_milli, 1_000) * windows) + 1


def worst_case(quotas: Quotas, assumed: Assumptions, *, cold_start_grace: bool) -> WorstCase:
    """Compute the worst case of these quotas."""
    shares = [_share(quotas, shown(user), resolve(quotas, user), 1, assumed) for user in quotas.users]
    anybody = resolve(quotas, _ANYBODY)
    if assumed.unnamed_users:
        shares.append(_share(quotas, "users not named", anybody, assumed.unnamed_users, assumed))
    bounded = [share for share in shares if share.unbounded is None]
    ceiling = (
        None
        if quotas.cluster_rate_milli is None
        else ids_at_most(quotas.cluster_rate_milli, quotas.producer_ids, assumed.expiry_ms)
    )
    of_users = _sum(bounded)
    known = [number for number in (of_users, ceiling) if number is not None]
    return WorstCase(
        assumed=assumed,
        shares=shares,
        ids_of_users=of_users,
        ids_at_ceiling=ceiling,
        ids=min(known, default=0) if bounded else 0,
        grace_ids=_grace_ids(bounded) if cold_start_grace and quotas.cluster_rate_milli != 0 else 0,
        transactional_is_bounded=quotas.producer_ids.transactional is Mode.ENFORCE,
    )


def _share(quotas: Quotas, who: str, quota: EffectiveQuota, users: int, assumed: Assumptions) -> Share:
    rate = quota.rate_milli
    unbounded = None
    if quota.exempt:
        unbounded = Unbounded.EXEMPT
    elif quota.mode is Mode.OBSERVE:
        unbounded = Unbounded.OBSERVED
    elif rate is None and quotas.cluster_rate_milli is None:
        unbounded = Unbounded.NO_LIMIT
    ids = None
    if unbounded is None and rate is not None:
        ids = ids_at_most(rate, quotas.producer_ids, assumed.expiry_ms)
    return Share(who=who, users=users, rate_milli=rate, ids_each=ids, unbounded=unbounded)


def _sum(shares: Sequence[Share]) -> int | None:
    """Return the ids of all; None when one of them is bounded by the ceiling alone."""
    total = 0
    for share in shares:
        if share.ids_each is None:
            return None
        total += share.ids_each * share.users
    return total


def _grace_ids(shares: Sequence[Share]) -> int | None:
    total = 0
    for share in shares:
        if share.rate_milli is None:
            return None
        total += -(-GRACE_TIMES_RATE * share.rate_milli // 1_000) * share.users
    return total


def ceiling_that_fits(worst: WorstCase, ids: ProducerIdSettings) -> int:
    """Return the highest `cluster_producer_ids_rate`, in whole ids per window, whose states fit into the heap given."""
    assumed = worst.assumed
    states = (assumed.heap_bytes or 0) // assumed.bytes_per_state * assumed.brokers
    most_ids = states // (assumed.partitions_per_id * worst.replicas)
    return max(0, int((most_ids - 1) / (ids.burst + Fraction(assumed.expiry_ms, ids.window_ms))))


def as_json(worst: WorstCase) -> Mapping[str, object]:
    """Return it for --json."""
    return {
        "assumed": asdict(worst.assumed),
        "users": [asdict(share) for share in worst.shares],
        "ids_of_users": worst.ids_of_users,
        "ids_at_ceiling": worst.ids_at_ceiling,
        "ids": worst.ids,
        "states": worst.states,
        "states_per_broker": worst.states_per_broker,
        "heap_bytes_per_broker": worst.heap_bytes,
        "grace_ids": worst.grace_ids,
        "transactional_is_bounded": worst.transactional_is_bounded,
        "exceeds_heap": worst.exceeds_heap,
    }


# ---- in words ------------------------------------------------------------------------------------------


def in_words(worst: WorstCase, ids: ProducerIdSettings, *, shares_quota: bool) -> Iterator[str]:
    """Yield the arithmetic line by line. `shares_quota`: the gateways of a cluster hold one quota together."""
    expiry = show_duration(worst.assumed.expiry_ms)
    yield f"Worst case on the brokers, within their producer.id.expiration.ms ({expiry}):"
    yield from _users(worst, ids)
    if not worst.ids and worst.unbounded and not worst.ids_at_ceiling:
        yield "  No number can be given: nothing is refused to anybody who brings producer ids."
        return
    yield from _states(worst)
    yield from _beyond(worst, shares_quota=shares_quota)


def heap_warnings(worst: WorstCase, ids: ProducerIdSettings) -> Iterator[str]:
    """Yield warnings about a heap that is too small."""
    heap_bytes = worst.assumed.heap_bytes
    if heap_bytes is None:
        return
    if worst.exceeds_heap:
        fits = ceiling_that_fits(worst, ids)
        remedy = f", or write cluster_producer_ids_rate: {fits}, which fits" if fits else ""
        yield (
            f"{about_size(worst.heap_bytes)} of producer states exceed the heap given ({show_size(heap_bytes)}); "
            f"lower the rates{remedy}"
        )
    if worst.unbounded:
        yield "nothing bounds the ids of some users (named above), so no heap is surely enough"


def _users(worst: WorstCase, ids: ProducerIdSettings) -> Iterator[str]:
    bounded = [share for share in worst.shares if share.unbounded is None]
    bounded.sort(key=lambda share: -(share.ids_each or 0) * share.users)
    for share in bounded[:MOST_SHOWN]:
        yield f"  {_share_name(share)}: {_arithmetic(share, worst, ids)}"
    left = bounded[MOST_SHOWN:]
    if left:
        yield f"  {len(left)} users more: {sum((share.ids_each or 0) * share.users for share in left):,} ids"
    if worst.unbounded:
        names = [f"{share.who} ({_WHY[share.unbounded]})" for share in worst.unbounded if share.unbounded]
        more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
        yield f"  Nothing bounds the ids of: {', '.join(names[:MOST_SHOWN])}{more}."
    if worst.ids_of_users is not None and len(bounded) > 1:
        yield f"  These users together: {worst.ids_of_users:,} ids"
    if worst.ids_at_ceiling is not None:
        yield f"  cluster_producer_ids_rate, over all who are enforced: {worst.ids_at_ceiling:,} ids at most"


def _share_name(share: Share) -> str:
    return f"{share.who} ({share.users} assumed)" if share.who == "users not named" else share.who


def _arithmetic(share: Share, worst: WorstCase, ids: ProducerIdSettings) -> str:
    if share.ids_each is None:
        return "no limit of its own"
    if not share.rate_milli:
        return "blocked: 0 ids"
    rate, expiry = show_milli(share.rate_milli), show_duration(worst.assumed.expiry_ms)
    burst = show_milli(int(ids.burst * 1_000))
    each = (
        f"{burst} x {rate} + {rate} x {expiry} / {show_duration(ids.window_ms)} + 1 = {share.ids_each:,} ids"
    )
    return each if share.users == 1 else f"{each} each, {share.ids_each * share.users:,} ids"


def _states(worst: WorstCase) -> Iterator[str]:
    assumed = worst.assumed
    yield (
        f"  {worst.ids:,} ids x {assumed.partitions_per_id} partitions x {worst.replicas} replicas "
        f"= {worst.states:,} states; / {assumed.brokers} brokers = {worst.states_per_broker:,} on each"
    )
    yield (
        f"  {worst.states_per_broker:,} states x {assumed.bytes_per_state} bytes "
        f"= {about_size(worst.heap_bytes)} of heap on each broker"
    )
    yield (
        f"  Assumed: --partitions-per-id {assumed.partitions_per_id}, --replication-factor "
        f"{assumed.replication_factor}, --brokers {assumed.brokers}, --expiry {show_duration(assumed.expiry_ms)}, "
        f"--bytes-per-state {assumed.bytes_per_state}, --users {assumed.unnamed_users}"
    )


def _beyond(worst: WorstCase, *, shares_quota: bool) -> Iterator[str]:
    """Yield what the number does not contain."""
    yield "  On top: ids that have been in use for longer (producers that really run). A SASL mechanism whose users"
    yield "  cannot be identified counts as one user."
    if not worst.transactional_is_bounded:
        yield "  Transactional producers are not refused (producer_ids.transactional: observe): nothing bounds them."
    if worst.grace_ids is None:
        yield "  In the grace after a cold start nothing bounds users without a rate of their own."
    elif worst.grace_ids:
        yield f"  The grace after a cold start lets in {worst.grace_ids:,} ids more, once."
    if not shares_quota:
        yield "  Without the events topic each gateway counts for itself: with n gateways it is n times as much."
