"""Transactional ids of one user: remembered for seven days, and limited by a rate of their own. PURE.

A transactional id is known here by 64 bits of a hash that every gateway computes alike; the filter hashes them again
with the user's own seed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pidgate.quota.layered_filter import LayeredFilter
from pidgate.quota.settings import ProducerIdSettings
from pidgate.quota.token_bucket import TokenBucket

REMEMBER_MS: Final = 604_800_000
"""The brokers' transactional.id.expiration.ms."""


def remembering(settings: ProducerIdSettings) -> ProducerIdSettings:
    """Return the settings of filters that hold transactional ids."""
    return replace(settings, remember_ms=REMEMBER_MS)


class TransactionalIds:
    """Filter and bucket. The bucket outlives a removed rate, as that of producer ids.

    `grace_admitted`: ids admitted as grace.
    """

    __slots__ = ("bucket", "filter", "grace_admitted")

    def __init__(self, ids: LayeredFilter) -> None:
        self.filter = ids
        self.bucket: TokenBucket | None = None
        self.grace_admitted = 0

    def is_idle(self, now_ms: int) -> bool:
        """Return whether there is nothing to remember."""
        return (self.bucket is None or self.bucket.is_full(now_ms)) and self.filter.is_empty(now_ms)
