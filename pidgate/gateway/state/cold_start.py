"""Grace of a cold start: begun when no state is found, continued over restarts, shared by gateways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config.settings import ProducerIdsSettings
from pidgate.gateway.logs import Event, logger
from pidgate.quota.producer_ids import ProducerIdQuota

log = logger()


GAP_MS: Final = 600_000
"""Producers may have started while no gateway ran for this long: the next start is a cold one."""
SAME_MS: Final = 1_000
"""Ends this close together count as one: they come from the wall clocks of several machines."""


class ColdStart:
    """The grace of this gateway.

    It ends by the monotonic clock, so setting the wall clock back does not restart it.
    """

    def __init__(
        self, settings: ProducerIdsSettings, quota: ProducerIdQuota, now_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._quota = quota
        self._now_ms = now_ms
        self._until_ms = 0

    @property
    def grace_left_ms(self) -> int:
        """Remaining time in which unseen ids are admitted uncharged; 0 without a grace."""
        return max(0, self._until_ms - self._now_ms()) if self._until_ms else 0

    @property
    def grace_until_wall_ms(self) -> int | None:
        """End of the grace, for snapshots and other gateways. None: no grace."""
        left_ms = self.grace_left_ms
        return wall_ms() + left_ms if left_ms else None

    def share(self, until_wall_ms: int, reason: str, *, is_restored: bool) -> None:
        """Join a grace: a restart does not end it, and gateways that start together share one.

        A gateway with a restored state does not join the grace of a gateway without.
        """
        left_ms = until_wall_ms - wall_ms()
        if is_restored and not self.grace_left_ms:
            return
        is_later = left_ms > self.grace_left_ms + SAME_MS
        if is_later and left_ms <= self._settings.grace_ms:
            self._begin(left_ms, reason)

    def begin(self, reason: str) -> None:
        """Begin a grace of full length, unless one is active or it is configured to 0."""
        if self._settings.grace_ms and not self.grace_left_ms:
            self._begin(self._settings.grace_ms, reason)

    def _begin(self, grace_ms: int, reason: str) -> None:
        self._until_ms = self._now_ms() + grace_ms
        self._quota.begin_grace(self._until_ms)
        log.warning(Event.GRACE_BEGAN, reason=reason, grace_ms=grace_ms)

    def end(self, reason: str) -> None:
        """End the grace before its time."""
        self._until_ms = 0
        self._quota.begin_grace(0)
        log.warning(Event.GRACE_ENDED_EARLY, reason=reason)
