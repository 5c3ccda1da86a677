"""Byte rates by entity, and whose bytes are counted together (KIP-13; Kafka's ClientQuotaManager). PURE.

Kafka's eight levels, the first with a rate of the kind wins:
 1 (user, client id), 2 (user, default client), 3 user, 4 (default user, client id), 5 (default user, default client),
 6 default user, 7 client id, 8 default client.

The level also decides who shares a bucket: on 1, 2, 4 and 5 each (user, client id) has its own, on 3 and 6 all clients
of a user share one, on 7 and 8 all users of a client id do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pidgate.quota.entities import User, resolve
from pidgate.quota.settings import DEFAULT, ByteEntity, ByteQuotas, Mode, Quotas


class Kind(StrEnum):
    """The direction counted: `producer_byte_rate` holds for PRODUCE, `consumer_byte_rate` for FETCH."""

    PRODUCE = "produce"
    FETCH = "fetch"


BucketName = tuple[str | None, str | None]
"""(user, client id) whose bytes are counted together: Kafka's metric tags. None: whoever it is."""


"""Characters that distinguish clients under a default client's rate."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A client's bound: its rate, the bucket it is measured in, and the level (1 to 8) that set it."""

    rate_bytes_per_s: int
    bucket: BucketName
    level: int


def resolve_rate(quotas: ByteQuotas, kind: Kind, user: User, client_id: str | None) -> Bound | None:
    """Return the bound of a client; None: nothing limits it.

    A missing client id is the empty one, which the default client's rates hold for.
    """
    client = client_id or DEFAULT
    for level, entity in _levels(user, client):
        rate = rate_of(quotas, kind, entity)
        if rate is not None:
            return Bound(rate, _bucket(level, user, client), level)
    return None


def rate_of_bucket(quotas: ByteQuotas, kind: Kind, bucket: BucketName) -> int | None:
    """Return the rate that now holds for a bucket: of the levels that lead to it, so that a level below never does."""
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
