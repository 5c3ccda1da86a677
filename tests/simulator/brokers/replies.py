"""What a broker gives for a request: bytes, nothing, or an answer that comes later. Pure."""

from __future__ import annotations

from collections.abc import Callable


class Later:
    """An answer that waits for something: for replication, for another broker, for time."""

    __slots__ = ("_then", "closes", "is_done", "value")

    def __init__(self) -> None:
        self.is_done = False
        self.value: bytes | None = None
        self.closes = False
        """The connection is closed instead."""
        self._then: Callable[[], None] | None = None

    def finish(self, value: bytes | None, *, closes: bool = False) -> None:
        """The answer is there; a second one is left out."""
        if self.is_done:
            return
        self.is_done, self.value, self.closes = True, value, closes
        if self._then is not None:
            self._then()

    def then(self, action: Callable[[], None]) -> None:
        """Call the action when the answer is there, at once if it is."""
        if self.is_done:
            action()
        else:
            self._then = action


Reply = bytes | None | Later
