"""Identity out of a SASL exchange between a client and a broker, read as it passes. PURE.

The broker alone authenticates; nothing here checks a password. A name counts from the moment the broker has accepted
the very message that belongs to it. Of a token only the name is ever kept, never a secret.

PLAIN (RFC 4616) and SCRAM-SHA-256/512 (RFC 5802) are read as Kafka's PlainSaslServer and ScramSaslServer do. Whatever
is not understood gives an unidentified user, not an error: the broker decides what is wrong. Must not know frames;
messages.py takes mechanism, tokens and answers out of them.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

PLAIN: Final = "PLAIN"
SCRAM_MECHANISMS: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
OAUTHBEARER: Final = "OAUTHBEARER"

MAX_UNANSWERED: Final = 16
"""Tokens of one client that may wait for the broker's answer. An honest client waits for each. What is beyond
is not remembered and the connection stays unidentified, so that a flood costs no memory and gains no name."""

_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>[^,\0]+))?,"  # gs2 header; Kafka has no channel binding (p=, y)
    r"(?:m=[^,\0]+,)?"  # reserved
    r"n=(?P<saslname>(?:[^=,\0]|=2C|=3D)+),"
    r"r=[!-+\--~]+"  # printable but the comma
    r"(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*)"
)
_TOKEN_AUTH = re.compile(r",tokenauth=true(?:,|$)", re.IGNORECASE)


class Identity(NamedTuple):
    """Somebody whom a broker has let in."""

    user: str | None
    """The principal's name, as in User:<name>. None: unidentified."""
    mechanism: str


class _Kind(Enum):
    ONLY = "the one message of PLAIN"
    SCRAM_FIRST = "client-first"
    SCRAM_FINAL = "client-final"
    OTHER = "a message of a mechanism that we do not read"


class _Step(NamedTuple):
    """The kept part of a client's token until the broker has answered it."""

    exchange: int
    mechanism: str
    kind: _Kind
    user: str | None


class SaslExchange:
    """The exchanges of one connection: the first one and each re-authentication (KIP-368).

    Tokens may be pipelined, so each waits in order for its own answer: a success that belongs to one token
    never confirms the name in another one. Until a re-authentication succeeds, the old identity stays.
    """

    __slots__ = ("_exchange", "_first", "_mechanism", "_overrun", "_unanswered", "identity")

    def __init__(self) -> None:
        self.identity: Identity | None = None
        """The latest that a broker has confirmed; None before the first success."""
        self._exchange = 0
        self._mechanism = ""
        self._unanswered: list[_Step] = []
        self._first: _Step | None = None
        self._overrun = False

    def __repr__(self) -> str:
        return f"<SaslExchange {self._mechanism or 'not begun'}, identity {self.identity}>"

    def handshake(self, mechanism: str) -> None:
        """The client has begun an exchange (SaslHandshake request)."""
        self._exchange += 1
        self._mechanism = mechanism

    def client_token(self, token: bytes) -> None:
        """The client has sent a token (SaslAuthenticate request)."""
        if len(self._unanswered) >= MAX_UNANSWERED:
            self._overrun = True
            return
        kind, user = _read(self._mechanism, token)
        self._unanswered.append(_Step(self._exchange, self._mechanism, kind, user))

    def broker_answer(self, error_code: int, token: bytes) -> Identity | None:
        """The broker has answered the oldest token that it had not answered (SaslAuthenticate response).

        Returns the identity when this answer is the success of an exchange, else None.
        """
        step = self._unanswered.pop(0) if self._unanswered else None
        first, self._first = self._first, None
        if error_code != 0 or step is None:
            return None
        identity = self._confirmed(step, first, token)
        if identity is None:
            if step.kind is _Kind.SCRAM_FIRST:
                self._first = step
            return None
        if self._overrun:
            identity = identity._replace(user=None)
        self.identity = identity
        return identity

    def _confirmed(self, step: _Step, first: _Step | None, answer: bytes) -> Identity | None:
        """Return the user that this answer without error lets in; None while the exchange goes on."""
        if step.mechanism == PLAIN:
            return Identity(step.user, PLAIN)
        if step.mechanism in SCRAM_MECHANISMS:
            if not answer.startswith(b"v="):
                return None
            belongs = step.kind is _Kind.SCRAM_FINAL and first is not None and first.exchange == step.exchange
            return Identity(first.user if belongs and first is not None else None, step.mechanism)
        if step.mechanism == OAUTHBEARER and answer:
            # A refusal comes as an answer with JSON and no error code; success is empty (RFC 7628).
            return None
        return Identity(None, step.mechanism)


def _read(mechanism: str, token: bytes) -> tuple[_Kind, str | None]:
    """Return the kind of message, and the name in it if it holds one that can be trusted after success."""
    if mechanism == PLAIN:
        return _Kind.ONLY, _plain_user(token)
    if mechanism in SCRAM_MECHANISMS:
        if token.startswith(b"c="):
            return _Kind.SCRAM_FINAL, None
        return _Kind.SCRAM_FIRST, _scram_user(token)
    return _Kind.OTHER, None


def _plain_user(token: bytes) -> str | None:
    """The name in [authzid] NUL authcid NUL password; Kafka wants authzid empty or equal to authcid."""
    parts = token.split(b"\0")
    if len(parts) != 3:
        return None
    authzid, authcid, _ = parts
    if not authcid or authzid not in (b"", authcid):
        return None
    return _text(authcid)


def _scram_user(token: bytes) -> str | None:
    """The name in a client-first message.

    None for tokenauth=true as well: the name is then a delegation token's id, and its owner, who becomes the
    principal, is known to the broker only (KIP-48).
    """
    text = _text(token)
    match = _CLIENT_FIRST.fullmatch(text) if text is not None else None
    if match is None or _TOKEN_AUTH.search(match["extensions"]):
        return None
    user = match["saslname"].replace("=2C", ",").replace("=3D", "=")
    return user if match["authzid"] in (None, user) else None


def _text(raw: bytes) -> str | None:
    """UTF-8, or None: a name with replacement characters could be somebody else's."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
