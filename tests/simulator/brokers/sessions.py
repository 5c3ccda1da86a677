"""Connections as a broker knows them: their listener, and who is at the other end (SASL PLAIN). Pure.

Kafka: SaslServerAuthenticator, KafkaApis.handleSaslHandshakeRequest, PlainSaslServer; KIP-152, KIP-368 (without
connections.max.reauth.ms nobody authenticates twice).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode

from pidgate.protocol import messages
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.versions import speaks
from tests.support import raw

ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"


class Closed(Exception):
    """The broker closes the connection, with no answer to what came last."""


class ClosedAfter(Exception):
    """The broker closes the connection behind this answer."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("closed after an answer")
        self.answer = answer


@dataclass(frozen=True)
class Listener:
    """`users`: name and password of those who may log in; None: nobody has to."""

    name: str = "PLAINTEXT"
    users: Mapping[str, str] | None = None


@dataclass(slots=True, eq=False)
class Session:
    """One connection to one node."""

    node_id: int
    listener: Listener = field(default_factory=Listener)
    connection_id: int = 0
    principal: str | None = None
    """None: not authenticated yet."""
    has_asked_versions: bool = False
    has_shaken_hands: bool = False
    muted_until_ms: int = 0
    """Until then the broker reads nothing from here (KIP-219)."""

    def __post_init__(self) -> None:
        if self.listener.users is None:
            self.principal = ANONYMOUS

    def authenticate(self, frame: bytes, head: RequestHead) -> bytes | None:
        """Answer one request before the login; None: it is ApiVersions, and comes before everything else.

        Raises Closed, or ClosedAfter: what is no part of a login ends the connection.
        """
        if not self.has_shaken_hands:
            if head.api_key == messages.API_VERSIONS and not self.has_asked_versions:
                return None
            if head.api_key == messages.SASL_HANDSHAKE and head.api_version == 1:
                return self._shake_hands(frame, head)
            raise Closed("a request before the handshake")
        if head.api_key == messages.SASL_AUTHENTICATE:
            return self._log_in(frame, head)
        if not speaks(head.api_key, head.api_version):
            raise Closed("an unknown request amid the login")
        raise ClosedAfter(sasl_out_of_place(head))

    def _shake_hands(self, frame: bytes, head: RequestHead) -> bytes:
        known = messages.sasl_mechanism(frame, head) == PLAIN
        error_code = ErrorCode.none if known else ErrorCode.unsupported_sasl_mechanism
        answer = raw.response(
            head.api_key,
            head.api_version,
            {"error_code": error_code, "mechanisms": [PLAIN]},
            correlation_id=head.correlation_id,
        )
        if not known:
            raise ClosedAfter(answer)
        self.has_shaken_hands = True
        return answer

    def _log_in(self, frame: bytes, head: RequestHead) -> bytes:
        """PlainSaslServer.evaluateResponse: [authzid] NUL name NUL password."""
        authorization_id, _, rest = messages.sasl_token(frame, head).partition(b"\x00")
        name, _, password = rest.partition(b"\x00")
        users = self.listener.users or {}
        accepted = bool(name) and users.get(name.decode()) == password.decode()
        accepted = accepted and authorization_id in (b"", name)
        body: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": b""}
        if not accepted:
            body["error_code"] = ErrorCode.sasl_authentication_failed
            body["error_message"] = "Authentication failed: Invalid username or password"
        answer = raw.response(head.api_key, head.api_version, body, correlation_id=head.correlation_id)
        if not accepted:
            raise ClosedAfter(answer)
        self.principal = name.decode()
        return answer


def sasl_out_of_place(head: RequestHead) -> bytes:
    """KafkaApis: SASL after the login, or where there is none: ILLEGAL_SASL_STATE, and the connection stays."""
    body: dict[str, Any] = {
        "error_code": ErrorCode.illegal_sasl_state,
        "error_message": None,
        "auth_bytes": b"",
        "mechanisms": [],
    }
    return raw.response(head.api_key, head.api_version, body, correlation_id=head.correlation_id)
