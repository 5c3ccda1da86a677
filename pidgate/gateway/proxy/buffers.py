"""The memory that bytes on their way may take: a budget for all connections, and what each holds of it.

What must outlive a read (an incomplete frame, a request held behind a mute, what a peer does not take) is counted
against the budget (as Kafka's queued.max.request.bytes). It has two halves, so that no large frame keeps a small one
waiting. Of each half a user takes at most what he leaves to the others: what he holds never exceeds what is free. A
frame that finds no room waits, and its connection is not read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

READ_BUFFER_BYTES: Final = 256 * 1024
"""The most that one read brings: large enough that a socket's receive buffer is emptied in a call or two, small
enough to stay in a core's second-level cache while it is copied. A larger frame has a buffer of its own."""

SMALL_FRAME_BYTES: Final = 1024 * 1024
"""Clients' max.request.size, unless somebody raised it: frames up to this size have a half of their own."""
SMALL_PER_BUDGET: Final = 64
"""In a small budget a frame is small up to this part of it."""

BEFORE_LOGIN: Final = "\0before login"
"""The owner of what connections hold that have not logged in, all together; no principal has this name."""
LITTLE: Final = 16
"""Before login all connections together hold at most this part of a half."""


def _nothing() -> None:
    pass


class Waiter:
    """A frame that waits for memory: how much it needs, and how it goes on."""

    __slots__ = ("more_bytes", "resume")

    def __init__(self, more_bytes: int, resume: Callable[[], None]) -> None:
        self.more_bytes = more_bytes
        self.resume = resume


class Half:
    """One half of the budget, with the waiters for it: of each user in the order they came.

    Frames take memory as they arrive, so it may be held by beginnings alone. One waiter at a time goes ahead
    nevertheless, until its frame is complete: that cannot lock, and costs one frame above the limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._held_bytes: dict[str, int] = {}
        """By owner; who holds nothing is not in it."""
        self._waiting: dict[str, dict[object, Waiter]] = {}
        """By owner."""
        self._owner_of: dict[object, str] = {}
        """Of each waiter."""
        self._ahead: object | None = None
        self._is_going_on = False

    def take(self, owner: str, amount_bytes: int) -> None:
        """Count bytes that are held from now on. What has arrived is never refused: see `has_room`."""
        self.used_bytes += amount_bytes
        self._held_bytes[owner] = self._held_bytes.get(owner, 0) + amount_bytes

    def give_back(self, owner: str, amount_bytes: int) -> None:
        self.used_bytes -= amount_bytes
        left_bytes = self._held_bytes[owner] - amount_bytes
        if left_bytes:
            self._held_bytes[owner] = left_bytes
        else:
            del self._held_bytes[owner]
        if self._waiting:
            self._go_on()

    def has_room(self, owner: str, more_bytes: int) -> bool:
        """True while the owner, with so much more, holds no more than is left free for everybody else."""
        held_bytes = self._held_bytes.get(owner, 0) + more_bytes
        if owner == BEFORE_LOGIN and held_bytes > self.limit_bytes // LITTLE:
            return False
        return held_bytes <= self.limit_bytes - self.used_bytes - more_bytes

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def may_take(self, who: object, owner: str, more_bytes: int) -> bool:
        """Return True when `who` need not wait: there is room, and none of his own waits already; or he is ahead."""
        return who is self._ahead or (owner not in self._waiting and self.has_room(owner, more_bytes))

    def wait(self, who: object, owner: str, more_bytes: int, resume: Callable[[], None]) -> None:
        """Call `resume` once, as soon as there is room, or it is the waiter's turn to go ahead."""
        self._waiting.setdefault(owner, {})[who] = Waiter(more_bytes, resume)
        self._owner_of[who] = owner
        if self._ahead is None:
            self._go_on()

    def leave(self, who: object) -> None:
        """Wait no more, nor go ahead: the frame is complete, or its connection gone."""
        owner = self._owner_of.pop(who, None)
        if owner is not None:
            self._remove(who, owner)
        if self._ahead is who:
            self._ahead = None
            self._go_on()

    def _go_on(self) -> None:
        if self._is_going_on:  # who is resumed gives back what it held while it waited
            return
        self._is_going_on = True
        try:
            while self._waiting and self._resume_one():
                pass
        finally:
            self._is_going_on = False

    def _resume_one(self) -> bool:
        """Resume a waiter that has room, or goes ahead. Returns whether there was one."""
        for owner in self._waiting:
            if self.has_room(owner, self._first_of(owner)[1].more_bytes):
                self._resume(owner)
                return True
        if self._ahead is not None:
            return False
        owner = next(iter(self._waiting))
        self._ahead = self._first_of(owner)[0]
        self._resume(owner)
        if owner in self._waiting:  # the next one to go ahead is another user's
            self._waiting[owner] = self._waiting.pop(owner)
        return True

    def _first_of(self, owner: str) -> tuple[object, Waiter]:
        return next(iter(self._waiting[owner].items()))

    def _resume(self, owner: str) -> None:
        who, waiter = self._first_of(owner)
        del self._owner_of[who]
        self._remove(who, owner)
        waiter.resume()

    def _remove(self, who: object, owner: str) -> None:
        waiters = self._waiting[owner]
        del waiters[who]
        if not waiters:
            del self._waiting[owner]


class BufferBudget:
    """Bytes that all connections together may hold, and those that they may have announced to brokers."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.small = Half(limit_bytes // 2)
        """For small frames alone."""
        self.large = Half(limit_bytes - limit_bytes // 2)
        """For everything else."""
        self.announced = Half(limit_bytes)
        """Of frames that are passed on as they come: not held here, but a broker allocates a frame at its length.
        As many as both halves, so that what could not be done to the gateway cannot be done to brokers either."""
        self.small_frame_bytes = min(SMALL_FRAME_BYTES, limit_bytes // SMALL_PER_BUDGET)
        self.is_full = False
        """A plain attribute, because every read of every socket asks."""
        self.on_full: Callable[[], None] = _nothing
        """Called each time the budget is spent."""

    @property
    def used_bytes(self) -> int:
        return self.small.used_bytes + self.large.used_bytes

    def look(self) -> None:
        """Bring `is_full` up to date; called after each change."""
        was_full = self.is_full
        self.is_full = self.small.used_bytes + self.large.used_bytes >= self.limit_bytes
        if self.is_full and not was_full:
            self.on_full()


class Purpose(IntEnum):
    """The purposes for which a connection holds memory."""

    SMALL_FRAME = 0
    """A request that has begun to arrive; the only one in the small half."""
    LARGE_FRAME = 1
    WAITING = 2
    """The part of a request that came before it had to wait."""
    HELD = 3
    """Requests behind a mute."""
    TO_BROKER = 4
    """Written, but not taken by the broker."""
    TO_CLIENT = 5
    """Written, but not taken by the client."""
    ANSWER = 6
    """An answer that has to be read whole."""
    ENCRYPTED_REQUESTS = 7
    """Read from the client, and not decrypted yet."""
    ENCRYPTED_ANSWERS = 8
    OWN_ANSWERS = 9
    """Answers of the gateway's own, behind a request that is in flight."""
    PASSED_ON = 10
    """A request that has begun to be passed on, at its length; not memory of this process."""


class BudgetShare:
    """One connection's share of the budget of all. Whose it is, is asked when it begins to hold something."""

    __slots__ = ("_budget", "_has_ended", "_held_bytes", "_owner", "_owner_now", "total_bytes")

    def __init__(self, budget: BufferBudget, owner_now: Callable[[], str]) -> None:
        self._budget = budget
        self._owner_now = owner_now
        self._owner = ""
        self._held_bytes = [0] * len(Purpose)
        self.total_bytes = 0
        self._has_ended = False

    def end(self) -> None:
        """Give everything back, and count nothing from now on: both sockets are gone, and nobody would release it."""
        for purpose in Purpose:
            self.hold(purpose, 0)
        self._has_ended = True

    @property
    def is_before_login(self) -> bool:
        """True where it counts for all connections together that have not logged in."""
        return (self._owner if self.total_bytes else self._owner_now()) == BEFORE_LOGIN

    def half_of(self, purpose: Purpose) -> Half:
        if purpose is Purpose.SMALL_FRAME:
            return self._budget.small
        return self._budget.announced if purpose is Purpose.PASSED_ON else self._budget.large

    def hold(self, purpose: Purpose, amount_bytes: int) -> None:
        """Set the bytes that are held for this purpose; 0 releases them."""
        change = amount_bytes - self._held_bytes[purpose]
        if not change or self._has_ended:
            return
        if not self.total_bytes:
            self._owner = self._owner_now()
        self._held_bytes[purpose] = amount_bytes
        self.total_bytes += change
        if change > 0:
            self.half_of(purpose).take(self._owner, change)
        else:
            self.half_of(purpose).give_back(self._owner, -change)
        self._budget.look()

    def held(self, purpose: Purpose) -> int:
        return self._held_bytes[purpose]

    def may_hold(self, who: object, purpose: Purpose, amount_bytes: int) -> bool:
        """Return True when `who` may hold so much for this purpose now."""
        owner = self._owner if self.total_bytes else self._owner_now()
        return self.half_of(purpose).may_take(who, owner, amount_bytes - self._held_bytes[purpose])

    def wait(self, who: object, purpose: Purpose, amount_bytes: int, resume: Callable[[], None]) -> None:
        """Call `resume` once when so much may be held for this purpose."""
        owner = self._owner if self.total_bytes else self._owner_now()
        self.half_of(purpose).wait(who, owner, amount_bytes - self._held_bytes[purpose], resume)

    def leave(self, who: object, purpose: Purpose) -> None:
        """Wait no more for memory for this purpose, nor go ahead of others."""
        self.half_of(purpose).leave(who)
