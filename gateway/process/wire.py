"""What workers and the holder of the state say to each other over their Unix socket, as bytes. PURE.

A message is its length (4 bytes), its kind (1 byte) and a body: JSON, but for events, whose value is carried as it
is. Both ends are started by one supervisor from one installation, so there is one version, told in HELLO: a holder
that was replaced by a newer installation says so, instead of misreading.

Topics are bytes that need not be text (an id behind a zero byte); as Latin-1 they pass through JSON unchanged.
"""

from __future__ import annotations

import base64
import json
import pickle
from dataclasses import astuple, dataclass, fields
from enum import IntEnum
from struct import Struct
from typing import Any, Final

from pidgate.quota.producer_ids import Answer, AskedId, Question
from pidgate.quota.verdicts import Bound, Decision, Reason

WIRE_VERSION: Final = 1
LONGEST_MESSAGE_BYTES: Final = 64 * 1024 * 1024

_HEAD: Final = Struct(">IB")
_KEY_LENGTH: Final = Struct(">H")
_LENGTH_BYTES: Final = 4


class Kind(IntEnum):
    """Of a message; who says it."""

    HELLO = 1
    """Worker: [wire version, worker number, process id]."""
    ASK = 2
    """Worker: [number, asked_ms, question]."""
    ANSWER = 3
    """Holder: [number, answer]."""
    UNCHARGED = 4
    """Worker: [[user, producer id], ...] count as admitted: they were let pass while nobody answered."""
    INHERIT = 5
    """Worker: [user, old producer id, new producer id]."""
    EVENT = 6
    """Worker: key and value of an event for the topic."""
    REPORT = 7
    """Worker: its counters and its users, once a second."""
    REFUSED = 8
    """Holder: [user, producer id], refused by another worker or gateway."""
    OFFSETS = 9
    """Holder: how far other gateways' events are applied, by partition."""
    BYE = 10
    """Worker: nothing; it has drained, and ends."""
    TOPIC_ID = 11
    """Holder: the id of one of the gateway's own topics, in hex."""
    QUOTAS = 12
    """Holder: [quota version, the quotas in force]."""
    CHANGE = 13
    """Worker: [number, whether to check only, changes of the quotas]."""
    CHANGED = 14
    """Holder: [number, for each change null or why not, where they are kept]."""


class WireError(Exception):
    """The other side does not speak as agreed; the connection ends."""


@dataclass(slots=True)
class Message:
    """One message; `body` is what JSON gave, or an event's (key, value)."""

    kind: Kind
    body: Any


def encoded(kind: Kind, body: object) -> bytes:
    """A message with a JSON body."""
    payload = json.dumps(body, separators=(",", ":")).encode()
    return _HEAD.pack(len(payload) + 1, kind) + payload


def encoded_event(key: str, value: bytes) -> bytes:
    key_bytes = key.encode()[:0xFFFF]
    length = 1 + _KEY_LENGTH.size + len(key_bytes) + len(value)
    return _HEAD.pack(length, Kind.EVENT) + _KEY_LENGTH.pack(len(key_bytes)) + key_bytes + value


class Decoder:
    """Bytes in, messages out."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. Raises WireError."""
        pending = self._pending
        pending += data
        messages: list[Message] = []
        pos = 0
        while len(pending) - pos >= _HEAD.size:
            length, kind = _HEAD.unpack_from(pending, pos)
            if not 1 <= length <= LONGEST_MESSAGE_BYTES:
                raise WireError(f"a message of {length} bytes")
            end = pos + _LENGTH_BYTES + length
            if len(pending) < end:
                break
            messages.append(_decoded(kind, bytes(pending[pos + _HEAD.size : end])))
            pos = end
        del pending[:pos]
        return messages


def _decoded(kind: int, payload: bytes) -> Message:
    try:
        if kind == Kind.EVENT:
            (key_length,) = _KEY_LENGTH.unpack_from(payload)
            value_from = _KEY_LENGTH.size + key_length
            return Message(
                Kind.EVENT, (payload[_KEY_LENGTH.size : value_from].decode(), payload[value_from:])
            )
        return Message(Kind(kind), json.loads(payload))
    except ValueError as error:
        raise WireError(f"an unreadable message of kind {kind}: {error}") from error


def packed(value: object) -> str:
    """What only processes of one installation tell each other, over a socket that nobody else can open."""
    return base64.b85encode(pickle.dumps(value)).decode()


def unpacked(text: str) -> Any:
    return pickle.loads(base64.b85decode(text))


# ---- questions and answers -----------------------------------------------------------------------------


def packed_question(question: Question) -> list[Any]:
    ids = [
        (
            asked.producer_id,
            asked.epoch,
            asked.base_sequence,
            asked.topic.decode("latin-1"),
            asked.partition,
            asked.came_back,
            asked.first_sight_above_0,
            asked.deadline_ms,
            asked.first_refused_ms,
        )
        for asked in question.ids
    ]
    return [
        question.user,
        question.address,
        question.client_id,
        question.transactional,
        question.request_partitions,
        ids,
    ]


def unpacked_question(packed: list[Any]) -> Question:
    user, address, client_id, transactional, request_partitions, ids = packed
    asked = [_unpacked_id(*fields) for fields in ids]
    return Question(user, address, client_id, transactional, request_partitions, asked)


def _unpacked_id(producer_id: int, epoch: int, base_sequence: int, topic: str, *rest: Any) -> AskedId:
    return AskedId(producer_id, epoch, base_sequence, topic.encode("latin-1"), *rest)


def packed_answer(answer: Answer) -> list[Any]:
    return [answer.refused, answer.bound, [_packed_decision(decision) for decision in answer.decisions]]


def unpacked_answer(packed: list[Any]) -> Answer:
    refused, bound, decisions = packed
    return Answer(refused, tuple(_unpacked_decision(one) for one in decisions), Bound(bound))


def _packed_decision(decision: Decision) -> list[Any]:
    return [field.decode("latin-1") if isinstance(field, bytes) else field for field in astuple(decision)]


_NAMES: Final = [field.name for field in fields(Decision)]
_TOPIC: Final = _NAMES.index("topic")
_REASON: Final = _NAMES.index("reason")


def _unpacked_decision(packed: list[Any]) -> Decision:
    own = list(packed)
    own[_TOPIC], own[_REASON] = own[_TOPIC].encode("latin-1"), Reason(own[_REASON])
    return Decision(*own)
