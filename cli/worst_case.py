"""What the quotas allow at most on the brokers: producer states, and the heap that they take. PURE.

A broker keeps one state for each producer id and partition that it wrote to, on every replica, until
`producer.id.expiration.ms` after the last write. All arithmetic is exact, and each step can be shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final

from pidgate.quota.entities import EffectiveQuota, resolve
from pidgate.quota.grace import GRACE_TIMES_RATE
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas

_ANYBODY: Final = ""
"""A name that nobody has: resolves to what holds for users that are not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """About the cluster, which the file does not know.

    partitions_per_id   partitions that one producer writes to
    unnamed_users       users that have no quota of their own
    heap_bytes          what the states may take on one broker; None: nobody said
    """

    partitions_per_id: int = 50
    replication_factor: int = 3
    brokers: int = 3
    expiry_ms: int = 86_400_000
    bytes_per_state: int = 250
    unnamed_users: int = 1
    heap_bytes: int | None = None


class Unbounded(StrEnum):
    """Why nothing bounds a user's ids."""

    OBSERVED = "observed"
    EXEMPT = "exempt"
    NO_LIMIT = "no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Users alike, `users` of them: each brings `ids` new producer ids at most within the expiry.

    `ids` None: nothing of its own bounds it. Then `unbounded` says why, or it is None, and the ceiling over all
    users bounds it.
    """

    who: str
    users: int
    rate_milli: int | None
    ids: int | None
    unbounded: Unbounded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """All of it. `ids_at_ceiling`: what `cluster_producer_ids_rate` lets in of those that are enforced.

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
        """Of the whole cluster, all replicas."""
        return self.ids * self.assumed.partitions_per_id * self.replicas

    @property
    def replicas(self) -> int:
        """A partition has one on a broker at most."""
        return min(self.assumed.replication_factor, self.assumed.brokers)

    @property
    def states_per_broker(self) -> int:
        """When they are spread evenly; rounded up."""
        return -(-self.states // self.assumed.brokers)

    @property
    def heap_bytes(self) -> int:
        """On each broker."""
        return self.states_per_broker * self.assumed.bytes_per_state

    @property
    def unbounded(self) -> list[Share]:
        return [share for share in self.shares if share.unbounded is not None]

    @property
    def exceeds_heap(self) -> bool:
        """Whether it takes more than was given."""
        return self.assumed.heap_bytes is not None and self.heap_bytes > self.assumed.heap_bytes


def ids_at_most(rate_milli: int, ids: ProducerIdSettings, expiry_ms: int) -> int:
    """New ids that a strict bucket lets in within any stretch of `expiry_ms`: burst x rate + rate x expiry / window,
    and one more, as the balance may end just below 0. A rate of 0 lets none in.
    """
    if rate_milli == 0:
        return 0
    windows = ids.burst + Fraction(expiry_ms, ids.window_ms)
    return int(Fraction(rate_milli, 1_000) * windows) + 1


def worst_case(quotas: Quotas, assumed: Assumptions, *, cold_start_grace: bool) -> WorstCase:
    """Of these quotas, under these assumptions."""
    shares = [_share(quotas, user, resolve(quotas, user), 1, assumed) for user in quotas.users]
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
    return Share(who=who, users=users, rate_milli=rate, ids=ids, unbounded=unbounded)


def _sum(shares: Sequence[Share]) -> int | None:
    """None: one of them is bounded by the ceiling alone."""
    total = 0
    for share in shares:
        if share.ids is None:
            return None
        total += share.ids * share.users
    return total


def _grace_ids(shares: Sequence[Share]) -> int | None:
    total = 0
    for share in shares:
        if share.rate_milli is None:
            return None
        total += -(-GRACE_TIMES_RATE * share.rate_milli // 1_000) * share.users
    return total


def ceiling_that_fits(worst: WorstCase, ids: ProducerIdSettings) -> int:
    """The highest `cluster_producer_ids_rate`, in whole ids per window, whose states fit into the heap given."""
    assumed = worst.assumed
    states = (assumed.heap_bytes or 0) // assumed.bytes_per_state * assumed.brokers
    most_ids = states // (assumed.partitions_per_id * worst.replicas)
    return max(0, int((most_ids - 1) / (ids.burst + Fraction(assumed.expiry_ms, ids.window_ms))))


def as_json(worst: WorstCase) -> Mapping[str, object]:
    """For programs."""
    assumed = worst.assumed
    return {
        "assumed": {
            "partitions_per_id": assumed.partitions_per_id,
            "replication_factor": assumed.replication_factor,
            "brokers": assumed.brokers,
            "expiry_ms": assumed.expiry_ms,
            "bytes_per_state": assumed.bytes_per_state,
            "unnamed_users": assumed.unnamed_users,
            "heap_bytes": assumed.heap_bytes,
        },
        "users": [
            {
                "who": share.who,
                "users": share.users,
                "rate_milli": share.rate_milli,
                "ids_each": share.ids,
                "unbounded": None if share.unbounded is None else str(share.unbounded),
            }
            for share in worst.shares
        ],
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
