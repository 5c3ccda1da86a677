"""Messages between workers and the state owner over their Unix socket, as bytes. PURE.

A message is its length (4 bytes), its kind (1 byte) and a pickled body: one supervisor starts both ends from one
installation, and nobody else can open the socket. HELLO carries the version all the same, so that a worker meets an
owner of a newer installation with an error, not with a misreading.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import IntEnum
from operator import attrgetter
from struct import Struct
from typing import Any, Final, Self

from pidgate.quota.byte_quota import ByteSnapshot
from pidgate.quota.counters import UserSnapshot
from pidgate.quota.state import Answer, AskedId, Question
from pidgate.quota.verdicts import Decision

WIRE_VERSION: Final = 8
LONGEST_MESSAGE_BYTES: Final = 64 * 1024 * 1024
LAST_EVENTS_S: Final = 3.0
"""Time for the state owner to read a worker's last events."""

_HEAD: Final = Struct(">IB")
_LENGTH_BYTES: Final = 4


class Kind(IntEnum):
    """Of a message: its sender, and its body."""

    HELLO = 1
    """Worker: (wire version, worker number, process id)."""
    ASK = 2
    """Worker: (number, asked_ms, Question)."""
    ANSWER = 3
    """State owner: (number, Answer)."""
    UNCHARGED = 4
    """Worker: (number of the last, [PassedId, ...]) count as admitted: they passed while nobody answered, or were given
    by EndTxn.
    """
    EVENT = 6
    """Worker: (key, value) of an event for the topic."""
    REPORT = 7
    """Worker: its Report, once a second."""
    REFUSED = 8
    """State owner: (user, producer id), refused by another worker or gateway."""
    OFFSETS = 9
    """State owner: the next offset of others' events to apply, by partition."""
    BYE = 10
    """Worker: None; it has drained, and ends."""
    TOPIC_ID = 11
    """State owner: the id of a gateway topic, 16 bytes."""
    QUOTAS = 12
    """State owner: (Quotas in force, their version)."""
    CHANGE = 13
    """Worker: (number, whether to check only, changes of the quotas)."""
    CHANGED = 14
    """State owner: (number, for each change None or why not, where they are kept)."""
    WATCHED = 15
    """Worker: [(user, producer id), ...] refused lately, when it has connected: the state owner may be a new one."""
    INSERTED = 16
    """State owner: the number of the last UNCHARGED id that its state holds."""
    CONNECTIONS = 17
    """Worker: Counts of its open connections, those that changed."""
    CONNECTIONS_ELSEWHERE = 18
    """State owner: Counts of those of all other workers, those that changed."""
    TOKEN_OWNERS = 19
    """Both: [(id of a delegation token, its owner), ...], as an answer showed them to the sender or another worker."""
    EVENT_AGAIN = 20
    """Worker: an EVENT made before it connected, and not acknowledged by the state owner that it was written to."""
    EVENTS_SAFE = 21
    """State owner: how many events of this connection were taken so long ago that journal and topic have them."""


class WireError(Exception):
    """The peer breaks the protocol; the connection ends."""


@dataclass(slots=True)
class Message:
    """One message, its body decoded."""

    kind: Kind
    body: Any


def encoded(kind: Kind, body: object) -> bytes:
    """Return a message as bytes."""
    payload = pickle.dumps(body, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(payload) + 1, kind) + payload


def as_kind(message: bytes, kind: Kind) -> bytes:
    """Return an encoded message as one of another kind with the same body."""
    return message[:_LENGTH_BYTES] + bytes((kind,)) + message[_HEAD.size :]


class Decoder(Iterator[Message]):
    """Iterator of the messages that are complete so far; after its end it goes on when it is fed again."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._pos = 0

    def feed(self, data: bytes) -> Self:
        """Take more bytes; return itself."""
        self._pending += data
        return self

    def __next__(self) -> Message:
        """Return the next message. Raises WireError."""
        pending, pos = self._pending, self._pos
        if len(pending) - pos >= _HEAD.size:
            length, kind = _HEAD.unpack_from(pending, pos)
            if not 1 <= length <= LONGEST_MESSAGE_BYTES:
                raise WireError(f"a message of {length} bytes")
            end = pos + _LENGTH_BYTES + length
            if len(pending) >= end:
                self._pos = end
                return _decoded(kind, bytes(pending[pos + _HEAD.size : end]))
        del pending[:pos]
        self._pos = 0
        raise StopIteration


def _decoded(kind: int, payload: bytes) -> Message:
    try:
        return Message(Kind(kind), pickle.loads(payload))
    except Exception as error:
        raise WireError(
            f"an unreadable message of kind {kind} ({error}); after an upgrade, restart the whole gateway"
        ) from error


def _pickle_by_position(cls: type[Any]) -> None:
    """Have the fields of a dataclass pickled without their names.

    Half the time and a third of the bytes; and a compiled class has no other way to be pickled.
    """
    values = attrgetter(*(field.name for field in fields(cls)))
    copyreg.pickle(cls, lambda value: (cls, values(value)))


for _cls in (Question, AskedId, Answer, Decision, UserSnapshot, ByteSnapshot):
    _pickle_by_position(_cls)
