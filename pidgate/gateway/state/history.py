"""Whether gateways with a state exist in the history of the events topic. Without one, a start is cold. PURE.

A gateway that is still restoring, or in the grace of its own cold start, remembers no running producers. Its
presence is not a history.
"""

from __future__ import annotations

from pidgate.events.definitions import LifecycleEvent


class History:
    """Runs of gateways that had a state within `remember_ms`. `decided`: runs that decided by one since then.

    `decided`: incarnations that made decisions with one. A run's lifecycle events arrive in order, as they
    have one key.
    """

    def __init__(self, remember_ms: int) -> None:
        self.remember_ms = remember_ms
        self.decided: set[bytes] = set()
        self._restored: set[str] = set()
        self._restoring: set[str] = set()
        self._grace_until_wall_ms: dict[str, int] = {}

    def lifecycle(self, event: LifecycleEvent, age_ms: int) -> None:
        """Apply a lifecycle phase of a gateway.

        A run without a start event here began before the events that are read, and has been restored since.
        """
        run = event.incarnation
        if event.phase == "start":
            self._restoring.add(run)
            return
        if event.phase == "caught_up":
            self._restoring.discard(run)
        if run in self._restoring:
            return
        self._grace_until_wall_ms[run] = event.grace_until_wall_ms or 0
        if age_ms < self.remember_ms:
            self._restored.add(run)

    @property
    def is_known(self) -> bool:
        """Return whether some gateway had a state, even if it began with a grace that is still active."""
        return bool(self.decided or self._restored)

    def ends_cold_starts(self, wall_ms: int) -> bool:
        """Return whether some gateway had a state, and is in no grace any more."""
        runs = {run.decode("ascii", "replace") for run in self.decided}
        return any(self._grace_until_wall_ms.get(run, 0) <= wall_ms for run in runs | self._restored)

    @property
    def grace_until_wall_ms(self) -> int:
        """End of the longest grace; 0 without one."""
        return max(self._grace_until_wall_ms.values(), default=0)
