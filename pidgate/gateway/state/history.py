"""Whether a gateway with a state ran until a moment ago, by the events topic. Otherwise a start is cold. PURE.

A gateway that is still restoring, or in the grace of its own cold start, remembers no running producers. Its
presence is not a history.
"""

from __future__ import annotations

from pidgate.events.definitions import LifecycleEvent


class History:
    """Runs of gateways that had a state within `remember_ms`.

    `decided`: the last decision with one, by incarnation, on the clock of `now_ms`. A run's lifecycle events arrive in
    order, as they have one key.
    """

    def __init__(self, remember_ms: int) -> None:
        self.remember_ms = remember_ms
        self.decided: dict[bytes, int] = {}
        self._restored: dict[str, int] = {}
        self._restoring: set[str] = set()
        self._grace_until_wall_ms: dict[str, int] = {}

    def lifecycle(self, event: LifecycleEvent, at_ms: int, now_ms: int) -> None:
        """Apply a lifecycle phase of a gateway, published at `at_ms`.

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
        if now_ms - at_ms < self.remember_ms:
            self._restored[run] = max(at_ms, self._restored.get(run, at_ms))

    @property
    def is_known(self) -> bool:
        """Return whether some gateway had a state, even if it began with a grace that is still active."""
        return bool(self.decided or self._restored)

    def ends_cold_starts(self, since_ms: int, wall_ms: int) -> bool:
        """Return whether some gateway had a state since then, and is in no grace any more."""
        decided = {run.decode("ascii", "replace"): at_ms for run, at_ms in self.decided.items()}
        return any(
            at_ms >= since_ms and self._grace_until_wall_ms.get(run, 0) <= wall_ms
            for run, at_ms in (*decided.items(), *self._restored.items())
        )

    @property
    def grace_until_wall_ms(self) -> int:
        """End of the longest grace; 0 without one."""
        return max(self._grace_until_wall_ms.values(), default=0)
