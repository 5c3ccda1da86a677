"""Grace of a cold start: begun when nothing is remembered, continued over restarts, shared by gateways."""

from __future__ import annotations

from collections.abc import Callable

from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config.settings import ProducerIdsSettings
from pidgate.gateway.logs import Event, logger
from pidgate.quota.producer_ids import ProducerIdQuota

log = logger()


class ColdStart:
    """The grace of this gateway. `grace_until_wall_ms`: its end, kept in snapshots and published; None for none."""

    def __init__(
        self, settings: ProducerIdsSettings, quota: ProducerIdQuota, now_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._quota = quota
        self._now_ms = now_ms
        self.grace_until_wall_ms: int | None = None

    @property
    def grace_left_ms(self) -> int:
        """Time left in which unseen ids are admitted uncharged; 0 without a grace."""
        return max(0, (self.grace_until_wall_ms or 0) - wall_ms())

    def share(self, until_wall_ms: int, reason: str, *, is_restored: bool) -> None:
        """Take over a grace: a restart does not end one, and gateways that start together share one.

        A gateway that remembers already is not drawn into the grace of one that does not.
        """
        left_ms = until_wall_ms - wall_ms()
        if is_restored and not self.grace_left_ms:
            return
        if self._settings.cold_start == "grace" and self.grace_left_ms < left_ms <= self._settings.grace_ms:
            self._begin(left_ms, reason, is_new=False)

    def begin(self) -> None:
        """Begin a grace of full length, unless there is one, or none is wanted."""
        if self._settings.cold_start == "grace" and not self.grace_left_ms:
            reason = "nothing is remembered: every running producer looks new"
            self._begin(self._settings.grace_ms, reason, is_new=True)

    def _begin(self, grace_ms: int, reason: str, *, is_new: bool) -> None:
        self.grace_until_wall_ms = wall_ms() + grace_ms
        self._quota.begin_grace(self._now_ms() + grace_ms, is_new=is_new)
        log.warning(Event.GRACE_BEGAN, reason=reason, grace_ms=grace_ms)

    def end(self, reason: str) -> None:
        """End the grace before its time."""
        self.grace_until_wall_ms = None
        self._quota.begin_grace(0)
        log.warning(Event.GRACE_ENDED_EARLY, reason=reason)
