"""When reading from a socket pauses, and what a connection holds of the memory budget, purpose by purpose.

Both are kept per connection and know nothing of frames: the channels say why they pause and what they hold.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum

from pidgate.gateway.proxy.buffers import BufferBudget

SCARCE_READ_BYTES = 4 * 1024
"""The most that one read brings once the budget is spent: connections whose frames are small go on, and
those that begin a larger one have shown little of it before they wait."""


WRITE_HIGH_BYTES = 512 * 1024
"""Back-pressure begins here: two full reads, so that a bulk transfer does not stop and go at every read."""

LINGER_S = 30.0
"""How long a closed socket may go on to send what was written; a peer that takes nothing is cut off then."""


class Pause(IntEnum):
    """Why nothing is read from a socket just now: a bit each."""

    CONNECTING = 1
    """The broker is not connected yet."""
    PEER_BUSY = 2
    """The other side does not take what was read before."""
    HELD_FULL = 4
    """The read-ahead behind a mute is full."""
    BUDGET = 8
    """There is no memory for the frame that has begun."""
    DRAINING = 16
    NOT_READING = 32
    """This peer does not take its own answers: what it asks next would only add to them."""
    MANY_IN_FLIGHT = 64


class ReadGate:
    """Reading of one socket: it goes on when no reason to pause is left."""

    __slots__ = ("_transport", "reasons")

    def __init__(self) -> None:
        self.reasons = 0
        """Bits of Pause; not an IntFlag, whose truth is a call of its own that every answer would pay for."""
        self._transport: asyncio.Transport | None = None

    def opened(self, transport: asyncio.Transport) -> None:
        """Reasons given before hold from now on."""
        self._transport = transport
        if self.reasons:
            transport.pause_reading()

    def closed(self) -> None:
        """The socket is gone: nothing here keeps it, or what it served, alive."""
        self._transport = None

    def pause(self, why: Pause) -> None:
        if not self.reasons and self._transport is not None:
            self._transport.pause_reading()
        self.reasons |= why

    def resume(self, why: Pause) -> None:
        if not self.reasons & why:
            return
        self.reasons &= ~why
        if not self.reasons and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


def close_when_written(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
    """Close the socket once what was written has left, or LINGER_S have passed."""
    if transport.is_closing():
        return
    transport.close()
    if transport.get_write_buffer_size():
        loop.call_later(LINGER_S, transport.abort)


class Purpose(IntEnum):
    """What a connection holds memory for."""

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
    """What one connection holds of the budget of all."""

    __slots__ = ("_budget", "_held_bytes", "total_bytes")

    def __init__(self, budget: BufferBudget) -> None:
        self._budget = budget
        self._held_bytes = [0] * len(Purpose)
        self.total_bytes = 0

    def hold(self, purpose: Purpose, amount_bytes: int) -> None:
        """From now on so much is held for this purpose; 0 gives all of it back."""
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
