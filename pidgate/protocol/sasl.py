"""Client identity from the SASL exchange with the broker, parsed in passing. PURE.

Only the broker authenticates; the gateway checks no password. A name counts once the broker has accepted the
message that contained it. Only the name of a token is kept, never a secret.

PLAIN (RFC 4616) and SCRAM-SHA-256/512 (RFC 5802) are parsed as Kafka's PlainSaslServer and ScramSaslServer
do, OAUTHBEARER in oauthbearer.py. If a broker accepts a message that cannot be parsed, the identity has no
name.

Must not know frames: messages.py extracts mechanism, tokens and answers.
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
"""Limit for PLAIN and SCRAM, which carry a name and a password or proof of at most 255 bytes (RFC 4616).

Other mechanisms carry signed tokens (limits in oauthbearer.py) or tickets, which are not parsed.
"""

LONGEST_MECHANISM: Final = 64
"""Stored characters of a mechanism's name; RFC 4422 allows 20."""


class Identity(NamedTuple):
    """An authenticated client."""

    user: str | None
    """The principal's name, as in User:<name>; None if unidentified."""
    mechanism: str
    token_id: str = ""
    """Delegation token used for the login; its owner is the principal."""


class _Kind(Enum):
    ONLY = "the one message of PLAIN"
    SCRAM_FIRST = "client-first"
    SCRAM_FINAL = "client-final"
    BEARER = "a message of OAUTHBEARER"
    OTHER = "a message of a mechanism that we do not read"


class _Step(NamedTuple):
    """The retained part of a client's token until the broker responds."""

    exchange: int
    mechanism: str
    kind: _Kind
    user: str | None
    token_id: str


class SaslExchange:
    """The SASL exchanges of one connection: the first one and each re-authentication (KIP-368).

    SASL clients send a token only after the response to the previous one, so a success confirms exactly one
    token. The old identity stays until a re-authentication succeeds.
    """

    __slots__ = ("_exchange", "_first", "_mechanism", "_unanswered", "identity", "principal_claim")

    def __init__(self) -> None:
        self.identity: Identity | None = None
        """The last identity confirmed by a broker; None before the first success."""
        self.principal_claim = DEFAULT_CLAIM
        """The OAUTHBEARER claim that brokers use as the principal's name."""
        self._exchange = 0
        self._mechanism = ""
        self._unanswered: _Step | None = None
        self._first: _Step | None = None

    def __repr__(self) -> str:
        return f"<SaslExchange {self._mechanism or 'not begun'}, identity {self.identity}>"

    @property
    def is_under_way(self) -> bool:
        """Whether a login has started and none has succeeded yet."""
        return bool(self._mechanism) and self.identity is None

    def begin_exchange(self, mechanism: str) -> None:
        """Start an exchange with this mechanism (SaslHandshake request)."""
        self._exchange += 1
        self._mechanism = mechanism[:LONGEST_MECHANISM]

    def record_client_token(self, token: bytes) -> None:
        """Record a token of the client (SaslAuthenticate request).

        Raises MalformedFrame if the previous token has no response yet, or if this one is too long for its
        mechanism.
        """
        if self._unanswered is not None:
            raise MalformedFrame("a second SaslAuthenticate before the response to the first one")
        read = _read(self._mechanism, token, self.principal_claim)
        self._unanswered = _Step(self._exchange, self._mechanism, *read)

    def record_broker_answer(self, error_code: int, token: bytes) -> Identity | None:
        """Record the broker's response to the pending token (SaslAuthenticate response).

        Returns the identity if it completes the exchange, otherwise None.
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
        """Return the user authenticated by this successful response; None while the exchange continues."""
        if step.mechanism == PLAIN:
            return Identity(step.user, PLAIN)
        if step.mechanism in SCRAM_MECHANISMS:
            if not answer.startswith(b"v="):
                return None
            if step.kind is not _Kind.SCRAM_FINAL or first is None or first.exchange != step.exchange:
                return Identity(None, step.mechanism)
            return Identity(first.user, step.mechanism, first.token_id)
        if step.kind is _Kind.BEARER and answer:
            # A refusal is JSON without an error code; success is empty (RFC 7628).
            return None
        return Identity(step.user, step.mechanism)


def _read(mechanism: str, token: bytes, claim: str) -> tuple[_Kind, str | None, str]:
    """Return the message kind, the name in it and the delegation token id.

    The name is None if it cannot be trusted after success.

    Raises MalformedFrame if the token is too long.
    """
    if mechanism == OAUTHBEARER:
        return _Kind.BEARER, _name(principal_in(token, claim)), ""
    if mechanism != PLAIN and mechanism not in SCRAM_MECHANISMS:
        return _Kind.OTHER, None, ""
    if len(token) > LONGEST_TOKEN_BYTES:
        raise MalformedFrame(f"a {mechanism} token of {len(token)} bytes; the limit is {LONGEST_TOKEN_BYTES}")
    if mechanism == PLAIN:
        return _Kind.ONLY, _plain_user(token), ""
    if token.startswith(b"c="):
        return _Kind.SCRAM_FINAL, None, ""
    name, is_token = _scram_name(token)
    return (_Kind.SCRAM_FIRST, None, name or "") if is_token else (_Kind.SCRAM_FIRST, name, "")


def _plain_user(token: bytes) -> str | None:
    """Return the name in [authzid] NUL authcid NUL password; authzid must be empty or equal to authcid.

    Kafka ignores everything after a third NUL and accepts the login.
    """
    authzid, _, rest = token.partition(b"\0")
    authcid, separator, _ = rest.partition(b"\0")
    if not separator or authzid not in (b"", authcid):
        return None
    return _name(_text(authcid))


def _scram_name(token: bytes) -> tuple[str | None, bool]:
    """Return the name in a client-first message, and whether it is a delegation token's id (KIP-48).

    Format: n,[a=authzid],[m=reserved,]n=name,r=nonce[,extension=value]... A token's owner is the principal.
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
    """Parse extensions as Kafka's ScramExtensions does: exact names, the last of a repeated name wins."""
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
    """Decode UTF-8; None if invalid, since replacement characters could form another user's name."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
