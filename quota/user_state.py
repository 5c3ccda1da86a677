"""One user's state as plain values, for a file or another process. PURE.

Every time is an age relative to the moment of the export, so that another clock can take it up; an age below 0 lies
after that moment. Must not know file formats or decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    data          ceil(bits / 8) bytes; bit i is bit i % 8 of byte i // 8
    """

    design_count: int
    bits: int
    hashes: int
    count: int
    newest_of: int
    slice_age_ms: int
    used_age_ms: int
    data: bytes


@dataclass(frozen=True, slots=True)
class BucketState:
    """A balance at the moment of the export: `token_units` of `units` are one token, `rate_milli` thousandths
    of an id are refilled per window.
    """

    units: int
    token_units: int
    rate_milli: int


@dataclass(frozen=True, slots=True)
class UserState:
    """One user: the filter's 32-bit seed and its layers, oldest first, the bucket, and the ids let in as
    grace.
    """

    user: User
    seed: int
    layers: tuple[LayerState, ...] = ()
    bucket: BucketState | None = None
    grace_admitted: int = 0
