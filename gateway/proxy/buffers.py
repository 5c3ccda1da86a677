"""The memory that bytes on their way may take: a budget for all connections, and what each holds of it.

What must outlive a read (an incomplete frame, a request held behind a mute, what a peer does not take) is counted
against the budget (as Kafka's queued.max.request.bytes); when it is spent, reading pauses.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum


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
        """True when the owner may take no more for now."""
        return self.is_full and owner is not self._ahead

    def wait(self, owner: object, resume: Callable[[], None]) -> None:
        """Call `resume` once, as soon as there is room again, or it is the owner's turn to go ahead."""
        self._waiting[owner] = resume
        self._go_on()

    def leave(self, owner: object) -> None:
        """Take the owner off the list of waiters: its frame is complete, or its connection gone."""
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


class Purpose(IntEnum):
    """The purposes for which a connection holds memory."""

    FRAME = 0
    """A request that has begun to arrive."""
    HELD = 1
    """Requests behind a mute."""
    TO_BROKER = 2
    """Written, but not taken by the broker."""
    TO_CLIENT = 3
    """Written, but not taken by the client."""
    ANSWER = 4
    """An answer that has to be read whole."""


class BudgetShare:
    """One connection's share of the budget of all."""

    __slots__ = ("_budget", "_held_bytes", "total_bytes")

    def __init__(self, budget: BufferBudget) -> None:
        self._budget = budget
        self._held_bytes = [0] * len(Purpose)
        self.total_bytes = 0

    def hold(self, purpose: Purpose, amount_bytes: int) -> None:
        """Set the bytes that are held for this purpose; 0 releases them."""
        change = amount_bytes - self._held_bytes[purpose]
        if not change:
            return
        self._held_bytes[purpose] = amount_bytes
        self.total_bytes += change
        if change > 0:
            self._budget.take(change)
        else:
            self._budget.give_back(-change)

    def held(self, purpose: Purpose) -> int:
        return self._held_bytes[purpose]
