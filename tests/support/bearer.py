"""Bearer tokens and the messages that carry them (RFC 7519, RFC 7628), signed by nobody."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

FAR_FUTURE_S: Final = 4_000_000_000

_OF_KAFKA: Final = "org.apache.kafka.common.security.oauthbearer"
_VALIDATOR: Final = f"{_OF_KAFKA}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


def broker_properties(listener: str, claim: str = "sub") -> dict[str, str]:
    """Let in whoever writes a token as whom its claim names: it needs no signature there."""
    of_listener = f"listener.name.{listener.lower()}.oauthbearer"
    options = f'unsecuredLoginStringClaim_sub="broker" unsecuredValidatorPrincipalClaimName="{claim}"'
    login = f"{_OF_KAFKA}.OAuthBearerLoginModule required {options};"
    return {
        f"{of_listener}.sasl.jaas.config": login,
        f"{of_listener}.sasl.server.callback.handler.class": _VALIDATOR,
    }


def encoded(part: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def jwt(**claims: Any) -> str:
    """Return an unsecured token, as Kafka's OAuthBearerUnsecuredValidatorCallbackHandler takes it."""
    claims = {"iat": 0, "exp": FAR_FUTURE_S, **claims}
    header = encoded(b'{"alg":"none"}')
    return f"{header}.{encoded(json.dumps(claims).encode())}."


def bearer(token: str, *, start: bytes = b"n,,\x01", scheme: bytes = b"Bearer ", more: bytes = b"") -> bytes:
    """Return a client's first message; `more`: extensions, each with its end."""
    return start + b"auth=" + scheme + token.encode() + b"\x01" + more + b"\x01"
