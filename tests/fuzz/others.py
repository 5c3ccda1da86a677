"""Varints, tokens of SASL, messages between processes; compared with Kafka's classes and struct."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Final

from pidgate.gateway.process.wire import Decoder, Kind, WireError, encoded
from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.frames import read_uvarint
from pidgate.protocol.sasl import SaslExchange
from tests.fuzz.kafka_oracle import PLAIN, SCRAM, VARINT, Refused, kafka
from tests.fuzz.requests import REFUSALS, NotTaken
from tests.fuzz.target import Target

# ---- varints --------------------------------------------------------------------------------------------


def _same_varint(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    value, end = found
    theirs, position = kafka().ask(VARINT, data).split()
    assert (value & 0xFFFFFFFF, end) == (int(theirs) & 0xFFFFFFFF, int(position))


def _varint(data: bytes) -> object:
    if not data:
        raise MalformedFrame("nothing")
    return read_uvarint(data, 0)


def _varint_seeds() -> Iterator[bytes]:
    for length in range(6):
        yield b"\x80" * length + b"\x01"
        yield b"\xff" * length + b"\x7f"


# ---- SASL -----------------------------------------------------------------------------------------------

_MECHANISMS: Final = {0: "PLAIN", 1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def _user(data: bytes) -> object:
    """The name that a token gives, if the broker takes it and all that follows."""
    if not data or data[0] not in _MECHANISMS:
        raise NotTaken
    exchange = SaslExchange()
    exchange.begin_exchange(_MECHANISMS[data[0]])
    exchange.record_client_token(data[1:])
    identity = exchange.record_broker_answer(0, b"" if data[0] == 0 else b"r=x,s=x,i=1")
    if data[0]:
        exchange.record_client_token(b"c=biws,r=x,p=x")
        identity = exchange.record_broker_answer(0, b"v=x")
    return identity.user if identity is not None else None


def _same_user(data: bytes, user: object) -> None:
    """A name that is read is the one that Kafka reads; one that is not is nobody's."""
    try:
        theirs = json.loads(kafka().ask(SCRAM if data[0] else PLAIN, data[1:]))
    except Refused:
        return  # it never answers with success
    kind, _, name = theirs.partition(" ") if data[0] else ("user", "", theirs)
    assert kind == "user", "the principal is the owner of a delegation token"
    assert user == name


def _token_seeds() -> Iterator[bytes]:
    yield b"\0\0bob\0pw"
    yield b"\0bob\0bob\0pw"
    for extensions in ("", ",tokenauth=true", ",TOKENAUTH=true", ",tokenauth=TRUE", ",a=b,tokenauth=true"):
        for name in ("bob", "b=2Cob", "b=3D2C"):
            yield b"\1" + f"n,,n={name},r=abc{extensions}".encode()
    yield b"\2n,a=bob,n=bob,r=abc"
    yield b"\2n,,m=x,n=bob,r=abc"


# ---- messages between processes -------------------------------------------------------------------------


def _messages(data: bytes) -> object:
    """Pickled bodies cannot be fuzzed: both ends are ours. What is fuzzed is their frame, and how they are cut."""
    if len(data) < 2:
        raise NotTaken
    step, kind, body = data[0] + 1, data[1], data[2:]
    head = body[:5]
    decoder = Decoder()
    if kind < 128:
        stream = encoded(list(Kind)[kind % len(Kind)], body) * 2
        return [
            message.body
            for at in range(0, len(stream), step)
            for message in decoder.feed(stream[at : at + step])
        ]
    length = int.from_bytes(head[:4], "big")
    if len(head) < 5 or 1 <= length <= len(body):
        raise NotTaken  # whole: it would be unpickled
    return list(decoder.feed(head))


def _same_messages(data: bytes, found: object) -> None:
    if data[1] < 128:
        assert found == [data[2:]] * 2
    else:
        assert found == []
        (length,) = struct.unpack_from(">I", data, 2)
        assert 1 <= length <= 64 << 20


def _message_seeds() -> Iterator[bytes]:
    yield b"\x00\x01hello"
    yield b"\x06\x05" + bytes(40)
    yield b"\x00\x80\x04\x00\x00\x00\x01"
    yield b"\x00\x80\x00\x00\x01\x00\x01"


TARGETS: Final = (
    Target("varints", _varint, _same_varint, _varint_seeds, REFUSALS),
    Target("sasl_tokens", _user, _same_user, _token_seeds, REFUSALS),
    Target("messages", _messages, _same_messages, _message_seeds, (WireError, NotTaken)),
)
