"""One user's state as plain values, for a file. PURE.

Every time is an age relative to the moment of the export, so that another clock can take it up; an age below 0 lies
after that moment. Must not know file formats or decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pidgate.quota.entities import User


@dataclass(frozen=True, slots=True)
class LayerState:
    """One layer of a user's filter.

    design_count  distinct ids it was made for
    bits, hashes  its shape: m and k
    count         distinct ids put into it
    newest_of     of them those that are in no newer layer
    slice_age_ms  since its slice ended
    used_age_ms   since the latest moment at which an id in it may have been used
    data          ceil(bits / 8) bytes; bit i is bit i % 8 of byte i // 8. A view of the filter's own bits: an id
                  that is put in later shows in it, in part or whole
    transactional whether its ids were used in transactions
    """

    design_count: int
    bits: int
    hashes: int
    count: int
    newest_of: int
    slice_age_ms: int
    used_age_ms: int
    data: bytes | memoryview
    transactional: bool = False


@dataclass(frozen=True, slots=True)
class BucketState:
    """A balance at the moment of the export: `token_units` of `units` are one token, `rate_milli` thousandths
    of an id are refilled per window. `rehearsed_units`: the balance if all that is observed were enforced, where that
    is counted apart.
    """

    units: int
    token_units: int
    rate_milli: int
    rehearsed_units: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionalIdsState:
    """A user's transactional ids: the filter's layers, the bucket, and the ids let in as grace."""

    layers: tuple[LayerState, ...] = ()
    bucket: BucketState | None = None
    grace_admitted: int = 0


@dataclass(frozen=True, slots=True)
class UserState:
    """One user: the 32-bit seed and the layers of its filters, oldest first, the bucket, the ids let in as
    grace, and the transactional ids where a rate limits them.
    """

    user: User
    seed: int
    layers: tuple[LayerState, ...] = ()
    bucket: BucketState | None = None
    grace_admitted: int = 0
    transactional_ids: TransactionalIdsState | None = None

    def without_grace(self) -> UserState:
        """Return the same state as if no grace had let anything in: one that is over counts against no later one."""
        names = self.transactional_ids
        return replace(
            self,
            grace_admitted=0,
            transactional_ids=None if names is None else replace(names, grace_admitted=0),
        )
