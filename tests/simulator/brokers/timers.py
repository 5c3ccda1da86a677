"""What the brokers do later: actions with a time, run in the order of their times. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush


class Timers:
    """A heap of actions. Those of one time run in the order in which they were set."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._set = 0

    def at(self, due_ms: int, action: Callable[[], None]) -> None:
        """Run the action when the time comes. It must ask itself whether it is still wanted."""
        self._set += 1
        heappush(self._due, (due_ms, self._set, action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run the action after that time; at once when it is 0."""
        if delay_ms <= 0:
            action()
        else:
            self.at(self.now_ms + delay_ms, action)

    @property
    def next_due_ms(self) -> int | None:
        """Time of the next action; None: there is none."""
        return self._due[0][0] if self._due else None

    def advance(self, now_ms: int) -> None:
        """Run all that is due, each at its own time."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, _, action = heappop(self._due)
            self.now_ms = max(self.now_ms, due_ms)
            action()
        self.now_ms = max(self.now_ms, now_ms)


def none() -> int:
    """No delay."""
    return 0


@dataclass
class Delays:
    """How long things take, in ms; each is asked once for each time that it happens."""

    replication_ms: Callable[[], int] = none
    """Until a follower has fetched what was appended."""
    markers_ms: Callable[[], int] = none
    """Until a marker of an ended transaction is written into a partition."""
    controller_ms: Callable[[], int] = none
    """Until the controller has given a block of producer ids."""
    metadata_ms: Callable[[], int] = none
    """Until a node's Metadata shows that a partition has another leader; asked for each node."""
    throttle_ms: Callable[[], int] = none
    """How long a broker's own quotas mute a connection after a Produce."""
