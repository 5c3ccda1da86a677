"""Open connections of all workers, added up by the state owner: each worker learns what the others have. PURE.

Workers report numbers, not what was added, and only those that changed. A user who has connections in many workers so
has as many in all as one process would let him have.
"""

from __future__ import annotations

from pidgate.gateway.proxy.connection_quotas import Counts


class OpenConnections:
    """The latest numbers of each worker, by its process id."""

    def __init__(self) -> None:
        self._of: dict[int, Counts] = {}

    def take(self, process: int, changed: Counts) -> dict[int, Counts]:
        """Take in what has changed in a worker; return for each other one what the rest have of that now."""
        mine = self._of.setdefault(process, {})
        for key, count in changed.items():
            if count:
                mine[key] = count
            else:
                mine.pop(key, None)
        return {
            other: {key: self._elsewhere(other, key) for key in changed}
            for other in self._of
            if other != process
        }

    def joined(self, process: int) -> Counts:
        """Return what all others have; to be sent to a worker that has connected."""
        self._of.setdefault(process, {})
        others = (counts for other, counts in self._of.items() if other != process)
        return {key: self._elsewhere(process, key) for counts in others for key in counts}

    def lost(self, process: int) -> dict[int, Counts]:
        """Forget a worker; return what the rest have now, as `take` does."""
        gone = self.take(process, dict.fromkeys(self._of.get(process, {}), 0))
        self._of.pop(process, None)
        return gone

    def _elsewhere(self, process: int, key: tuple[str, str]) -> int:
        return sum(counts.get(key, 0) for other, counts in self._of.items() if other != process)
