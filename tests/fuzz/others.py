"""Varints and tokens of SASL, compared with Kafka's classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

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


TARGETS: Final = (
    Target("varints", _varint, _same_varint, _varint_seeds, REFUSALS),
    Target("sasl_tokens", _user, _same_user, _token_seeds, REFUSALS),
)
