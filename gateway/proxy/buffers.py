"""Memory for bytes on their way: one read buffer for all connections, and a budget for the rest.

All connections of a process read into the same buffer, one at a time: the event loop asks for a buffer,
reads, and hands the bytes over before it turns to another socket. An idle connection therefore costs no
buffer at all. What must outlive the call (an incomplete frame, a frame held behind a mute) is counted
against the budget (as Kafka's queued.max.request.bytes); when it is spent, reading pauses.
"""

from __future__ import annotations

from collections.abc import Callable

READ_BUFFER_BYTES = 256 * 1024
"""What one read may bring: large enough that a socket's receive buffer is emptied in a call or two,
small enough to stay in a core's second-level cache while it is copied."""

READ_BUFFER = bytearray(READ_BUFFER_BYTES)
READ_VIEW = memoryview(READ_BUFFER)


def _nothing() -> None:
    pass


class BufferBudget:
    """Bytes that all connections together may hold; waiters are resumed in the order they came.

    Frames take memory as they arrive, so a full budget may be held by beginnings alone. One waiter at a time
    goes on nevertheless, until its frame is complete: that cannot lock, and costs one frame above the limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.is_full = False
        """A plain attribute, because every read of every socket asks."""
        self.on_full: Callable[[], None] = _nothing
        """Called each time the budget is spent."""
        self._waiting: dict[object, Callable[[], None]] = {}
        self._ahead: object | None = None

    def take(self, amount_bytes: int) -> None:
        """Count bytes that are held from now on. The frame in hand is never refused: see `is_full`."""
        self.used_bytes += amount_bytes
        if not self.is_full and self.used_bytes >= self.limit_bytes:
            self.is_full = True
            self.on_full()

    def give_back(self, amount_bytes: int) -> None:
        self.used_bytes -= amount_bytes
        self.is_full = self.used_bytes >= self.limit_bytes
        self._go_on()

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def must_wait(self, owner: object) -> bool:
        """Whether the owner may take no more for now."""
        return self.is_full and owner is not self._ahead

    def wait(self, owner: object, resume: Callable[[], None]) -> None:
        """Call `resume` once, as soon as there is room again, or it is the owner's turn to go ahead."""
        self._waiting[owner] = resume
        self._go_on()

    def leave(self, owner: object) -> None:
        """The owner's frame is complete, or its connection gone."""
        self._waiting.pop(owner, None)
        if self._ahead is owner:
            self._ahead = None
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not (self.is_full and self._ahead is not None):
            owner = next(iter(self._waiting))
            resume = self._waiting.pop(owner)
            if self.is_full:
                self._ahead = owner
            resume()
