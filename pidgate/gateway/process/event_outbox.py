"""Events on their way to the state owner: in order, and each kept until it is safe there. PURE.

What is written is not yet received, and what is received is not yet in the topic: a state owner that dies takes both
with it. So events stay here until it acknowledges them, and the next one gets those that it did not, marked as made
before it knew this process: those that admit it then remembers (state/admitted.py).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from pidgate.gateway.process.wire import Kind, as_kind, encoded

MOST_KEPT_EVENTS: Final = 100_000


class EventOutbox:
    """Bounded: when it is full, events that were written and not acknowledged are forgotten first, then new ones
    dropped.
    """

    def __init__(self) -> None:
        self._unwritten: deque[bytes] = deque()
        self._written: deque[bytes] = deque()
        self._left = 0
        """Number of those written on this connection that are no longer kept."""
        self._again = 0
        """Number of the next to write that were made before this connection."""
        self.dropped = 0
        """Events that are lost."""

    def __len__(self) -> int:
        return len(self._unwritten) + len(self._written)

    def put(self, key: str, value: bytes) -> None:
        """Keep an event, to be written behind all others."""
        if len(self) >= MOST_KEPT_EVENTS:
            if not self._written:
                self.dropped += 1
                return
            # Not lost by that, unless this state owner dies within a second.
            self._forget_first()
        self._unwritten.append(encoded(Kind.EVENT, (key, value)))

    def connected(self) -> None:
        """Begin a connection: all that is not acknowledged is written on it, first of all."""
        self._unwritten.extendleft(reversed(self._written))
        self._written.clear()
        self._left = 0
        self._again = len(self._unwritten)

    def next(self) -> bytes | None:
        """Return the next event to write on this connection; None: there is none."""
        if not self._unwritten:
            return None
        event = self._unwritten.popleft()
        self._written.append(event)
        if self._again:
            self._again -= 1
            return as_kind(event, Kind.EVENT_AGAIN)
        return event

    def acknowledged(self, count: int) -> None:
        """The state owner has made the first `count` events of this connection safe."""
        while self._left < count and self._written:
            self._forget_first()

    def _forget_first(self) -> None:
        self._written.popleft()
        self._left += 1
