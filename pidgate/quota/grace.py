"""Cold start: for a while, unseen ids are admitted uncharged, as every running producer looks new. PURE.

Bounded by user, so that a start is no way around the quota.
"""

from __future__ import annotations

GRACE_TIMES_RATE = 10
"""Bound of one user's ids, in windows of its rate."""


class Grace:
    """`until_ms` is 0 when there is none."""

    __slots__ = ("until_ms",)

    def __init__(self) -> None:
        self.until_ms = 0

    def admits(self, rate_milli: int | None, admitted: int, now_ms: int) -> bool:
        """Return whether one more unseen id is admitted of a user with this rate (None: without limit).

        `admitted`: so far. A rate of 0 blocks under grace too.
        """
        if not self.until_ms or now_ms >= self.until_ms:
            return False
        return rate_milli is None or admitted * 1000 < GRACE_TIMES_RATE * rate_milli

    def end_if_over(self, now_ms: int) -> None:
        if now_ms >= self.until_ms:
            self.until_ms = 0
