"""Memory budget for buffered bytes: one for all connections, and each connection's share of it.

Data that outlives a read (an incomplete frame, a request held behind a mute, unsent output) counts against
the budget, as in Kafka's queued.max.request.bytes. The budget has two halves, so that large frames do not
block small ones. In each half a user holds at most as much as is still free. A frame without room waits, and
its connection is not read until there is room.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, Protocol

READ_BUFFER_BYTES: Final = 256 * 1024
"""Most bytes of one read: large enough to empty a socket's receive buffer in one or two calls, small enough
to stay in a core's second-level cache during the copy. A larger frame has a buffer of its own."""

SMALL_FRAME_BYTES: Final = 1024 * 1024
"""Default max.request.size of clients. Frames up to this size have a half of their own."""
SMALL_PER_BUDGET: Final = 64
"""In a small budget, a frame is small up to this fraction of it."""

BEFORE_LOGIN: Final = "\0before login"
"""Common owner of everything held by connections that have not logged in. No principal has this name."""
LITTLE: Final = 16
"""Before login, all connections together hold at most this fraction of a half."""


def _nothing() -> None:
    pass


class Waiter:
    """A frame that waits for memory: its size and its callback."""

    __slots__ = ("more_bytes", "resume")

    def __init__(self, more_bytes: int, resume: Callable[[], None]) -> None:
        self.more_bytes = more_bytes
        self.resume = resume


class Half:
    """One half of the budget, and its queue of waiters in order of arrival per user.

    Frames take memory as they arrive, so beginnings of frames may hold all of it. One waiter at a time may
    therefore exceed the limit until its frame is complete. This prevents a deadlock and costs one frame above
    the limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._held_bytes: dict[str, int] = {}
        """Bytes held by owner, without owners that hold nothing."""
        self._waiting: dict[str, dict[object, Waiter]] = {}
        """Waiters by owner."""
        self._owner_of: dict[object, str] = {}
        """Owner of each waiter."""
        self._ahead: object | None = None
        self._is_going_on = False

    def hold(self, owner: str, amount_bytes: int) -> None:
        """Count bytes held from now on. Bytes that have arrived are never refused: see `has_room`."""
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
        """Return whether the owner, with `more_bytes`, would hold no more than stays free for all others."""
        held_bytes = self._held_bytes.get(owner, 0) + more_bytes
        if owner == BEFORE_LOGIN and held_bytes > self.limit_bytes // LITTLE:
            return False
        return held_bytes <= self.limit_bytes - self.used_bytes - more_bytes

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def may_take(self, who: object, owner: str, more_bytes: int) -> bool:
        """Return whether there is room and the owner has no waiters, or `who` may exceed the limit."""
        return who is self._ahead or (owner not in self._waiting and self.has_room(owner, more_bytes))

    def wait(self, who: object, owner: str, more_bytes: int, resume: Callable[[], None]) -> None:
        """Call `resume` once, when there is room or when this waiter may exceed the limit."""
        self._waiting.setdefault(owner, {})[who] = Waiter(more_bytes, resume)
        self._owner_of[who] = owner
        if self._ahead is None:
            self._go_on()

    def leave(self, who: object) -> None:
        """Stop waiting or exceeding the limit: the frame is complete, or its connection closed."""
        owner = self._owner_of.pop(who, None)
        if owner is not None:
            self._remove(who, owner)
        if self._ahead is who:
            self._ahead = None
            self._go_on()

    def _go_on(self) -> None:
        if self._is_going_on:  # a resumed waiter first releases its earlier holdings
            return
        self._is_going_on = True
        try:
            while self._waiting and self._resume_one():
                pass
        finally:
            self._is_going_on = False

    def _resume_one(self) -> bool:
        """Resume a waiter that has room, or let one exceed the limit. Returns whether a waiter was resumed."""
        for owner in self._waiting:
            if self.has_room(owner, self._first_of(owner)[1].more_bytes):
                self._resume(owner)
                return True
        if self._ahead is not None:
            return False
        owner = next(iter(self._waiting))
        self._ahead = self._first_of(owner)[0]
        self._resume(owner)
        if owner in self._waiting:  # the next waiter to exceed the limit belongs to another user
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
    """Budgets of all connections together: bytes buffered here, and bytes announced to brokers."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.small = Half(limit_bytes // 2)
        """For small frames only."""
        self.large = Half(limit_bytes - limit_bytes // 2)
        """For all other data."""
        self.announced = Half(limit_bytes)
        """Frames forwarded while they arrive. They are not buffered here, but a broker allocates the
        announced length of a frame. The limit equals both halves together, so brokers are protected as well
        as the gateway is."""
        self.small_frame_bytes = min(SMALL_FRAME_BYTES, limit_bytes // SMALL_PER_BUDGET)
        self.largest_frame_bytes = 0
        """The largest request so far that did not arrive in one read."""
        self.is_full = False
        """A plain attribute, because every read of every socket checks it."""
        self.on_full: Callable[[], None] = _nothing
        """Called each time the budget becomes full."""

    @property
    def used_bytes(self) -> int:
        return self.small.used_bytes + self.large.used_bytes

    def update_is_full(self) -> None:
        """Update `is_full`; called after each change."""
        was_full = self.is_full
        self.is_full = self.small.used_bytes + self.large.used_bytes >= self.limit_bytes
        if self.is_full and not was_full:
            self.on_full()


class Purpose(IntEnum):
    """Purposes for which a connection holds memory."""

    SMALL_FRAME = 0
    """A request that has begun to arrive. The only purpose in the small half."""
    LARGE_FRAME = 1
    WAITING = 2
    """The part of a request that arrived before the request had to wait."""
    HELD = 3
    """Requests held behind a mute."""
    TO_BROKER = 4
    """Written to the broker's transport, not yet sent."""
    TO_CLIENT = 5
    """Written to the client's transport, not yet sent."""
    ANSWER = 6
    """An answer that is buffered whole."""
    ENCRYPTED_REQUESTS = 7
    """Read from the client, not yet decrypted."""
    ENCRYPTED_ANSWERS = 8
    OWN_ANSWERS = 9
    """The gateway's own answers behind a request in flight."""
    PASSED_ON = 10
    """The full length of a request that is forwarded while it arrives; not memory of this process."""
    IN_FLIGHT = 11
    """Records of requests in flight."""
    REST = 12
    """Requests of one read that wait for their turn."""
    REST_OF_ANSWERS = 13
    """Answers of one read that wait for their turn."""
    SMALL_AMOUNTS = 14
    """Unsent bytes, requests in flight and the beginning of a frame, each too small to be counted when it comes: once a
    second, from 4 KiB on."""


NOTHING_HELD: Final = [0] * len(Purpose)
"""Until a connection holds something. Never written to."""


class PaysMemory(Protocol):
    """A connection. No callable: a bound method takes 64 bytes of each."""

    def pays_memory_as(self) -> str:
        """Return the owner of what it begins to hold now."""


class BudgetShare:
    """One connection's share of the budget. Its owner is determined when it begins to hold memory."""

    __slots__ = ("_budget", "_has_ended", "_held_bytes", "_owner", "_payer", "total_bytes")

    def __init__(self, budget: BufferBudget, payer: PaysMemory) -> None:
        self._budget = budget
        self._payer = payer
        self._owner = ""
        self._held_bytes = NOTHING_HELD
        self.total_bytes = 0
        self._has_ended = False

    def end(self) -> None:
        """Release everything and ignore later calls: both sockets are closed."""
        if self.total_bytes:
            for purpose in Purpose:
                self.hold(purpose, 0)
        self._has_ended = True

    @property
    def is_before_login(self) -> bool:
        """Return whether it counts for the common owner of connections that have not logged in."""
        return (self._owner if self.total_bytes else self._payer.pays_memory_as()) == BEFORE_LOGIN

    def half_of(self, purpose: Purpose) -> Half:
        if purpose is Purpose.SMALL_FRAME:
            return self._budget.small
        return self._budget.announced if purpose is Purpose.PASSED_ON else self._budget.large

    def hold(self, purpose: Purpose, amount_bytes: int) -> None:
        """Set the bytes held for this purpose; 0 releases them."""
        change = amount_bytes - self._held_bytes[purpose]
        if not change or self._has_ended:
            return
        if not self.total_bytes:
            self._owner = self._payer.pays_memory_as()
        if self._held_bytes is NOTHING_HELD:
            self._held_bytes = [0] * len(Purpose)
        self._held_bytes[purpose] = amount_bytes
        self.total_bytes += change
        if change > 0:
            self.half_of(purpose).hold(self._owner, change)
        else:
            self.half_of(purpose).give_back(self._owner, -change)
        if not self.total_bytes:
            self._held_bytes = NOTHING_HELD  # the list takes 176 bytes of each idle connection
        self._budget.update_is_full()

    def held(self, purpose: Purpose) -> int:
        return self._held_bytes[purpose]

    def may_hold(self, who: object, purpose: Purpose, amount_bytes: int) -> bool:
        """Return whether `who` may hold this amount for this purpose now."""
        owner = self._owner if self.total_bytes else self._payer.pays_memory_as()
        return self.half_of(purpose).may_take(who, owner, amount_bytes - self._held_bytes[purpose])

    def is_within(self, purpose: Purpose) -> bool:
        """Return whether its owner holds no more than stays free for all others."""
        return self.half_of(purpose).has_room(self._owner, 0)

    def wait(self, who: object, purpose: Purpose, amount_bytes: int, resume: Callable[[], None]) -> None:
        """Call `resume` once when this amount may be held for this purpose."""
        owner = self._owner if self.total_bytes else self._payer.pays_memory_as()
        self.half_of(purpose).wait(who, owner, amount_bytes - self._held_bytes[purpose], resume)

    def leave(self, who: object, purpose: Purpose) -> None:
        """Stop waiting for memory for this purpose, or exceeding its limit."""
        self.half_of(purpose).leave(who)
