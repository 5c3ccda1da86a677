"""The principal in a client's first OAUTHBEARER message (RFC 7628), parsed as Kafka parses it. PURE.

The gateway does not verify the token. The principal counts only after the broker has accepted the token.
Fields around the token are controlled by the client and parsed exactly as Kafka's
OAuthBearerClientInitialResponse does; otherwise a crafted message would authenticate without a name. A token
that is not a JWT has no name.
"""

from __future__ import annotations

import binascii
import json
import re
from typing import Any, Final

from pidgate.protocol.errors import MalformedFrame

DEFAULT_CLAIM: Final = "sub"
"""Kafka's sasl.oauthbearer.sub.claim.name."""

LONGEST_MESSAGE_BYTES: Final = 512 * 1024
"""Limit of brokers (sasl.server.max.receive.size)."""
LONGEST_TOKEN_BYTES: Final = 32 * 1024
"""Longest token whose name is read. HTTP proxies carry no longer ones. The issuer chooses the length."""
MOST_PAIRS: Final = 1_000

_SEPARATOR: Final = "\x01"
_PAIR: Final = re.compile(r"([A-Za-z]++)=([\x21-\x7e \t\r\n]++)")
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]++=*+")
_PLAIN: Final = str.maketrans("-_", "+/")


def principal_in(message: bytes, claim: str) -> str | None:
    """Return the claim in the token of a client's first message; None if it cannot be read reliably.

    Raises MalformedFrame for a message that every broker rejects.
    """
    if len(message) > LONGEST_MESSAGE_BYTES or message.count(b"\x01") > MOST_PAIRS:
        raise MalformedFrame(
            f"an OAUTHBEARER message of {len(message)} bytes; the limits are {LONGEST_MESSAGE_BYTES} bytes "
            f"and {MOST_PAIRS} values"
        )
    token = token_in(message)
    if token is None or len(token) > LONGEST_TOKEN_BYTES:
        return None
    return _claim(token, claim)


def token_in(message: bytes) -> str | None:
    """Return the token; None for messages that Kafka cannot parse, such as the end of a refused exchange."""
    try:
        text = message.decode("ascii")
    except UnicodeDecodeError:
        return None
    start = _behind_start(text)
    if not start or not text.endswith(_SEPARATOR, start):
        return None
    pairs = text[start:-1]
    if pairs and not pairs.endswith(_SEPARATOR):
        return None
    found: dict[str, str] = {}
    for pair in pairs.split(_SEPARATOR)[:-1]:
        match = _PAIR.fullmatch(pair)
        if match is None:
            return None
        found[match[1]] = match[2]  # the last of a repeated name wins
    scheme, _, auth = found.get("auth", "").partition(" ")
    token = auth.lstrip(" ")
    return token if scheme.lower() == "bearer" and _TOKEN.fullmatch(token) else None


def _behind_start(text: str) -> int:
    """Return the start of the pairs, after `n,[a=authzid],` and a separator; 0 if the prefix is missing.

    Uses searches: authzid may fill the 512 KiB allowed before login, and a pattern that tests each character
    takes 60 ms for them.
    """
    end = text.find(",", 2)
    if end < 0 or not text.startswith("n,") or not text.startswith(_SEPARATOR, end + 1):
        return 0
    if end > 2:
        name = text[4:end]
        escaped = name.count("=2C") + name.count("=3D")
        if not text.startswith("a=", 2) or not name or "\0" in name or name.count("=") != escaped:
            return 0
    return end + 1 + len(_SEPARATOR)


def _claim(token: str, claim: str) -> str | None:
    """Return the claim of a signed JWT (RFC 7519) if it is a name."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims: Any = json.loads(_decoded(parts[1]), object_pairs_hook=_without_doubles, parse_int=float)
        found = claims.get(claim) if isinstance(claims, dict) else None
        return found if isinstance(found, str) and _is_a_name(found) else None
    except (ValueError, RecursionError):
        return None


def _decoded(part: str) -> str:
    """Decode base64url. Raises ValueError."""
    padding = -len(part) % 4 * "="
    return binascii.a2b_base64(part.translate(_PLAIN) + padding, strict_mode=True).decode("utf-8")


def _without_doubles(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members as a dict.

    Raises ValueError for repeated names, which parsers resolve differently.
    """
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a repeated member name")
    return found


def _is_a_name(text: str) -> bool:
    """Return whether all brokers read the same name; some strip surrounding blanks."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # unpaired surrogate
        return False
    return text != "" and text[0] > " " and text[-1] > " " and "\0" not in text
