"""Identity out of a SASL exchange between a client and a broker, read as it passes. PURE.

The broker alone authenticates; nothing here checks a password. A name counts from the moment the broker has accepted
the very message that belongs to it. Of a token only the name is ever kept, never a secret.

PLAIN (RFC 4616) and SCRAM-SHA-256/512 (RFC 5802) are read as Kafka's PlainSaslServer and ScramSaslServer do, and
OAUTHBEARER in oauthbearer.py. Where a broker lets somebody in whose message is not understood, the identity has no
name: the broker decides what is wrong.
Must not know frames; messages.py takes mechanism, tokens and answers out of them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from pidgate.names import bounded
from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.oauthbearer import DEFAULT_CLAIM, principal_in

PLAIN: Final = "PLAIN"
SCRAM_MECHANISMS: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
OAUTHBEARER: Final = "OAUTHBEARER"

LONGEST_TOKEN_BYTES: Final = 16 * 1024
"""Of PLAIN and SCRAM, which carry a name and a password or a proof: 255 bytes each, says RFC 4616. Others bring signed
tokens (oauthbearer.py has their bounds) and tickets, which are not read."""

LONGEST_MECHANISM: Final = 64
"""Characters of a mechanism's name that are kept; RFC 4422 allows 20."""


class Identity(NamedTuple):
    """Somebody whom a broker has let in."""

    user: str | None
    """The principal's name, as in User:<name>. None: unidentified."""
    mechanism: str
    token_id: str = ""
    """Of the delegation token that it logged in with; its owner is the principal."""


class _Kind(Enum):
    ONLY = "the one message of PLAIN"
    SCRAM_FIRST = "client-first"
    SCRAM_FINAL = "client-final"
    BEARER = "a message of OAUTHBEARER"
    OTHER = "a message of a mechanism that we do not read"


class _Step(NamedTuple):
    """The kept part of a client's token until the broker has answered it."""

    exchange: int
    mechanism: str
    kind: _Kind
    user: str | None
    token_id: str


class SaslExchange:
    """The exchanges of one connection: the first one and each re-authentication (KIP-368).

    A client sends a token when the broker has answered the one before, as SASL demands and every client does: so a
    success belongs to one token, and never confirms the name in another one. Until a re-authentication succeeds, the
    old identity stays.
    """

    __slots__ = ("_exchange", "_first", "_mechanism", "_unanswered", "identity", "principal_claim")

    def __init__(self) -> None:
        self.identity: Identity | None = None
        """The latest that a broker has confirmed; None before the first success."""
        self.principal_claim = DEFAULT_CLAIM
        """Of OAUTHBEARER's tokens: the claim that brokers take the principal's name from."""
        self._exchange = 0
        self._mechanism = ""
        self._unanswered: _Step | None = None
        self._first: _Step | None = None

    def __repr__(self) -> str:
        return f"<SaslExchange {self._mechanism or 'not begun'}, identity {self.identity}>"

    @property
    def is_under_way(self) -> bool:
        """A login has begun, and none has succeeded yet."""
        return bool(self._mechanism) and self.identity is None

    def handshake(self, mechanism: str) -> None:
        """The client has begun an exchange (SaslHandshake request)."""
        self._exchange += 1
        self._mechanism = mechanism[:LONGEST_MECHANISM]

    def client_token(self, token: bytes) -> None:
        """The client has sent a token (SaslAuthenticate request).

        Raises MalformedFrame when the one before is not answered yet, or when it is too long for its mechanism.
        """
        if self._unanswered is not None:
            raise MalformedFrame("a second SaslAuthenticate before the first one was answered")
        read = _read(self._mechanism, token, self.principal_claim)
        self._unanswered = _Step(self._exchange, self._mechanism, *read)

    def broker_answer(self, error_code: int, token: bytes) -> Identity | None:
        """The broker has answered the oldest token that it had not answered (SaslAuthenticate response).

        Returns the identity when this answer is the success of an exchange, else None.
        """
        step, self._unanswered = self._unanswered, None
        first, self._first = self._first, None
        if error_code != 0 or step is None:
            return None
        identity = self._confirmed(step, first, token)
        if identity is None:
            if step.kind is _Kind.SCRAM_FIRST:
                self._first = step
            return None
        self.identity = identity
        return identity

    def _confirmed(self, step: _Step, first: _Step | None, answer: bytes) -> Identity | None:
        """Return the user that this answer without error lets in; None while the exchange goes on."""
        if step.mechanism == PLAIN:
            return Identity(step.user, PLAIN)
        if step.mechanism in SCRAM_MECHANISMS:
            if not answer.startswith(b"v="):
                return None
            if step.kind is not _Kind.SCRAM_FINAL or first is None or first.exchange != step.exchange:
                return Identity(None, step.mechanism)
            return Identity(first.user, step.mechanism, first.token_id)
        if step.kind is _Kind.BEARER and answer:
            # A refusal comes as an answer with JSON and no error code; success is empty (RFC 7628).
            return None
        return Identity(step.user, step.mechanism)


def _read(mechanism: str, token: bytes, claim: str) -> tuple[_Kind, str | None, str]:
    """Return the kind of message, the name in it if it holds one that can be trusted after success, and a token's id.

    Raises MalformedFrame when the token is too long.
    """
    if mechanism == OAUTHBEARER:
        return _Kind.BEARER, _name(principal_in(token, claim)), ""
    if mechanism != PLAIN and mechanism not in SCRAM_MECHANISMS:
        return _Kind.OTHER, None, ""
    if len(token) > LONGEST_TOKEN_BYTES:
        raise MalformedFrame(
            f"a {mechanism} token of {len(token)} bytes; {LONGEST_TOKEN_BYTES} hold any name and password"
        )
    if mechanism == PLAIN:
        return _Kind.ONLY, _plain_user(token), ""
    if token.startswith(b"c="):
        return _Kind.SCRAM_FINAL, None, ""
    name, is_token = _scram_name(token)
    return (_Kind.SCRAM_FIRST, None, name or "") if is_token else (_Kind.SCRAM_FIRST, name, "")


def _plain_user(token: bytes) -> str | None:
    """The name in [authzid] NUL authcid NUL password; Kafka wants authzid empty or equal to authcid.

    Kafka reads no further than to the third NUL, and lets in who has more behind it.
    """
    authzid, _, rest = token.partition(b"\0")
    authcid, separator, _ = rest.partition(b"\0")
    if not separator or authzid not in (b"", authcid):
        return None
    return _name(_text(authcid))


def _scram_name(token: bytes) -> tuple[str | None, bool]:
    """The name in a client-first message: n,[a=authzid],[m=reserved,]n=name,r=nonce[,extension=value]...

    And whether it is the id of a delegation token, whose owner becomes the principal (KIP-48).
    """
    nobody = None, False
    text = _text(token)
    if text is None or "\0" in text:
        return nobody
    fields = text.split(",")
    if fields[2:] and fields[2].startswith("m=") and fields[2] != "m=":
        del fields[2]
    if len(fields) < 4:
        return nobody
    gs2, authzid, field, nonce, *others = fields
    saslname, extensions = field.removeprefix("n="), _extensions(others)
    if (
        gs2 != "n"
        or saslname == field
        or not _is_nonce(nonce)
        or extensions is None
        or saslname.count("=") != saslname.count("=2C") + saslname.count("=3D")
    ):
        return nobody
    user = saslname.replace("=2C", ",").replace("=3D", "=")
    name = _name(user) if authzid in ("", f"a={user}") else None
    return name, extensions.get("tokenauth", "").lower() == "true"


def _is_nonce(field: str) -> bool:
    nonce = field.removeprefix("r=")
    return nonce != field and nonce != "" and all("!" <= char <= "~" for char in nonce)


def _extensions(fields: list[str]) -> dict[str, str] | None:
    """The extensions as Kafka's ScramExtensions has them: by their exact names, the last of one name counts."""
    extensions: dict[str, str] = {}
    for field in fields:
        name, _, value = field.partition("=")
        if not (name.isascii() and name.isalpha() and value):
            return None
        extensions[name] = value
    return extensions


def _name(text: str | None) -> str | None:
    return bounded(text) if text else None


def _text(raw: bytes) -> str | None:
    """UTF-8, or None: a name with replacement characters could be somebody else's."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
