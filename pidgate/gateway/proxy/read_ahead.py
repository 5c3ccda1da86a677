"""Memory of read-ahead on a connection: held requests, and own answers behind requests in flight.

Both count in the connection's share. Reading pauses when either is full, or when it exceeds a few requests
and its user has no room for another read. It does not wait for memory: the end of the mute, or the broker's
answer, releases it.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES, BudgetShare, Purpose
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.gateway.proxy.in_flight_requests import MOST_IN_FLIGHT
from pidgate.gateway.proxy.reading import Pause, ReadGate

OWN_ANSWERS_LIMIT_BYTES: Final = 1024 * 1024
"""Own answers that wait behind a request in flight; above it reading pauses. A refusal may be six times as
long as its request, and a request such as JoinGroup is in flight for minutes."""


WITHOUT_ROOM_BYTES: Final = 64 * 1024
"""Bytes of each that a connection may hold without room for its user: a client's usual few requests in
flight. The beginning of a sequence that lies unread is noted nowhere (quota/held_beginnings.py): if its
leader moves, later batches go to the new leader and pass."""


class ReadAhead:
    """The read-ahead of one connection."""

    __slots__ = ("_conversation", "_gate", "_share", "is_scarce")

    def __init__(self, conversation: Conversation, share: BudgetShare, gate: ReadGate) -> None:
        self._conversation = conversation
        self._share = share
        self._gate = gate
        self.is_scarce = False
        """The channel is muted and its user has no room for a large read. A plain attribute, because every
        read checks it."""

    def bound_held(self) -> bool:
        """Count requests held behind a mute and pause at the limit. Returns whether reads have to be small.

        Below the limit reading continues in small reads: requests that would be refused anyway are answered
        during a mute.
        """
        held_bytes = self._conversation.held_bytes
        self.count_held()
        self.is_scarce = not self._has_room(Purpose.HELD, held_bytes)
        if self._conversation.wants_no_more or (held_bytes >= WITHOUT_ROOM_BYTES and self.is_scarce):
            self._gate.pause(Pause.HELD_FULL)
        return self.is_scarce

    def count_held(self) -> None:
        """Update the budget with the held requests."""
        self._share.hold(Purpose.HELD, self._conversation.held_bytes)

    def released(self) -> None:
        """Resume reading after held requests were released; called before the rest is bounded again."""
        self.is_scarce = False
        if not self._conversation.wants_no_more:
            self._gate.resume(Pause.HELD_FULL)

    def bound_answers(self) -> None:
        """Count waiting own answers. Pause above their limit or the limit of requests in flight, else resume."""
        self.count_answers()
        own_bytes = self._conversation.unanswered.own_bytes
        if (
            len(self._conversation.unanswered) >= MOST_IN_FLIGHT
            or own_bytes >= OWN_ANSWERS_LIMIT_BYTES
            or (own_bytes >= WITHOUT_ROOM_BYTES and not self._has_room(Purpose.OWN_ANSWERS, own_bytes))
        ):
            self._gate.pause(Pause.MANY_IN_FLIGHT)
        else:
            self._gate.resume(Pause.MANY_IN_FLIGHT)

    def count_answers(self) -> None:
        """Update the budget with the waiting own answers."""
        self._share.hold(Purpose.OWN_ANSWERS, self._conversation.unanswered.own_bytes)

    def drop_answers(self) -> None:
        """Drop waiting own answers: the client is gone, and its broker's socket may stay open for a while."""
        self._conversation.unanswered.drop_own()
        self.count_answers()

    def _has_room(self, purpose: Purpose, held_bytes: int) -> bool:
        """Return whether the connection's user may hold the bytes of another read."""
        return self._share.may_hold(self, purpose, held_bytes + READ_BUFFER_BYTES)
