"""Memory of read-ahead on a connection: held requests, requests in flight, and own answers behind them.

All of it counts in the connection's share. Reading pauses when one of them is full, or when the user has no room for
requests in flight and answers. It does not wait for memory: the broker's answer releases it. A muted connection whose
user has no room for its held requests and its answers is closed instead. Its requests were
not forwarded, so the client sends them again, in order. An unread beginning of a sequence would be missing in
HeldBeginnings (quota/sticky.py): if its leader moved, later batches would pass at the new leader.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.proxy.apis.api import COUNTED_IN_FLIGHT, MOST_IN_FLIGHT
from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES, BudgetShare, Purpose
from pidgate.gateway.proxy.reading import Pause, ReadGate
from pidgate.gateway.proxy.session import Session

HELD_LIMIT_BYTES: Final = 1024 * 1024
"""Read-ahead behind a mute: enough to notice a disconnect and to answer a pipeline of five at once. The frame
that exceeds it is still held whole; then reading pauses until the mute ends."""

OWN_ANSWERS_LIMIT_BYTES: Final = 1024 * 1024
"""Own answers that wait behind a request in flight; above it reading pauses. A refusal may be six times as
long as its request, and a request such as JoinGroup is in flight for minutes."""

IN_FLIGHT_BYTES: Final = 256
"""Memory of a request in flight: the object, its numbers, and the notes of its API."""


class ReadAhead:
    """The read-ahead of one connection."""

    __slots__ = ("_gate", "_session", "_share", "is_scarce")

    def __init__(self, session: Session, share: BudgetShare, gate: ReadGate) -> None:
        self._session = session
        self._share = share
        self._gate = gate
        self.is_scarce = False
        """The channel is muted and its user has no room for a large read. A plain attribute, because every
        read checks it."""

    def bound(self, now_ms: int) -> bool:
        """Count the read-ahead in the budget. Pause above the limits, else resume. Returns whether there is room."""
        self.bound_answers()
        return self._bound_held(now_ms)

    def _bound_held(self, now_ms: int) -> bool:
        """Bound the requests held behind a mute. Returns whether there is room for them.

        Below the limit reading continues in small reads (`is_scarce`): requests that would be refused anyway
        are answered during a mute.
        """
        session = self._session
        held_bytes = session.held_bytes
        self._share.hold(Purpose.HELD, held_bytes)
        waits = bool(session.held) or session.context.muted_until_ms > now_ms
        self.is_scarce = waits and not self._has_room(Purpose.HELD, held_bytes)
        is_counted = held_bytes or session.context.in_flight.own_bytes
        has_room = not (waits and is_counted) or self._share.is_within(Purpose.HELD)
        if held_bytes >= HELD_LIMIT_BYTES or not has_room:
            self._gate.pause(Pause.HELD_FULL)
        else:
            self._gate.resume(Pause.HELD_FULL)
        # Without an answer a request would be lost with its connection.
        return has_room or session.holds_unanswerable

    def bound_answers(self) -> None:
        """Bound the own answers that wait, and the requests in flight."""
        in_flight = self._session.context.in_flight
        own_bytes, count = in_flight.own_bytes, len(in_flight)
        kept_bytes = count // COUNTED_IN_FLIGHT * COUNTED_IN_FLIGHT * IN_FLIGHT_BYTES
        self._share.hold(Purpose.OWN_ANSWERS, own_bytes)
        self._share.hold(Purpose.IN_FLIGHT, kept_bytes)
        if (
            count >= MOST_IN_FLIGHT
            or (kept_bytes and not self._has_room(Purpose.IN_FLIGHT, kept_bytes))
            or own_bytes >= OWN_ANSWERS_LIMIT_BYTES
            or (own_bytes and not self._has_room(Purpose.OWN_ANSWERS, own_bytes))
        ):
            self._gate.pause(Pause.MANY_IN_FLIGHT)
        else:
            self._gate.resume(Pause.MANY_IN_FLIGHT)

    def drop_held(self) -> None:
        """Drop held requests: the client is gone, or the gateway drains."""
        self._session.drop_held()
        self._share.hold(Purpose.HELD, 0)

    def drop_answers(self) -> None:
        """Drop waiting own answers: the client is gone, and its broker's socket may stay open for a while."""
        self._session.context.in_flight.drop_own_answers()
        self.bound_answers()

    def _has_room(self, purpose: Purpose, held_bytes: int) -> bool:
        """Return whether the connection's user may hold the bytes of another read."""
        return self._share.may_hold(self, purpose, held_bytes + READ_BUFFER_BYTES)
