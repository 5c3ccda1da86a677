"""Memory of what was read ahead on a connection: requests that are held, own answers behind requests in flight.

Both are counted in the connection's share. Reading pauses when either is full, or when it is more than a few requests
and its user has no room for what another read could bring. It does not wait for memory: the end of the mute, or the
broker's answer, gives it back.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES, BudgetShare, Purpose
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.gateway.proxy.in_flight_requests import MOST_IN_FLIGHT
from pidgate.gateway.proxy.reading import Pause, ReadGate

OWN_ANSWERS_LIMIT_BYTES: Final = 1024 * 1024
"""Own answers that wait behind a request in flight; beyond it reading pauses. A refusal may be six times as long as
what it answers, and a request such as JoinGroup is in flight for minutes."""


WITHOUT_ROOM_BYTES: Final = 64 * 1024
"""Bytes of each that a connection may have although its user has no room: the few requests that a client has in
flight. A beginning that lies unread is noted nowhere (quota/held_beginnings.py): where its leader moves, what comes
behind it is sent there, and passes."""


class ReadAhead:
    """The read-ahead of one connection."""

    __slots__ = ("_conversation", "_gate", "_share", "is_scarce")

    def __init__(self, conversation: Conversation, share: BudgetShare, gate: ReadGate) -> None:
        self._conversation = conversation
        self._share = share
        self._gate = gate
        self.is_scarce = False
        """It is muted, and its user has no room for a large read; a plain attribute, because every read asks."""

    def bound_held(self) -> bool:
        """Count what is held behind a mute, and pause when that is enough. Returns whether reads have to be small.

        While little is held reading goes on, in small pieces: what is refused anyway is answered behind a mute.
        """
        held_bytes = self._conversation.held_bytes
        self.count_held()
        self.is_scarce = not self._has_room(Purpose.HELD, held_bytes)
        if self._conversation.wants_no_more or (held_bytes >= WITHOUT_ROOM_BYTES and self.is_scarce):
            self._gate.pause(Pause.HELD_FULL)
        return self.is_scarce

    def count_held(self) -> None:
        """Bring the budget up to date with what is held."""
        self._share.hold(Purpose.HELD, self._conversation.held_bytes)

    def released(self) -> None:
        """Read on, since held requests went on; called before what is still held is bounded again."""
        self.is_scarce = False
        if not self._conversation.wants_no_more:
            self._gate.resume(Pause.HELD_FULL)

    def bound_answers(self) -> None:
        """Count own answers that wait; pause while they, or requests in flight, are too many, else read on."""
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
        """Bring the budget up to date with own answers that wait."""
        self._share.hold(Purpose.OWN_ANSWERS, self._conversation.unanswered.own_bytes)

    def drop_answers(self) -> None:
        """Forget own answers that wait: the client has gone, and its broker's socket may stay for a while."""
        self._conversation.unanswered.drop_own()
        self.count_answers()

    def _has_room(self, purpose: Purpose, held_bytes: int) -> bool:
        """Return whether its user may hold what another read brings."""
        return self._share.may_hold(self, purpose, held_bytes + READ_BUFFER_BYTES)
