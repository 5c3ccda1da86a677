"""Sessions of the status page: a cookie in place of the token, for browsers. PURE.

A cookie holds its end, signed with the token that was shown. Nothing is kept here, and a new token ends all sessions.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

SESSION_MS: Final = 12 * 3_600_000
_LONGEST: Final = 100


def cookie_name(port: int) -> str:
    """Return the cookie of the gateway at this port. Browsers send cookies to every port of a host."""
    return f"pidgate_{port}"


def make_session(token: bytes, until_wall_ms: int) -> str:
    """Return the value of a cookie."""
    return f"{until_wall_ms}.{_signed(token, until_wall_ms)}"


def is_session(token: bytes, value: str, now_wall_ms: int) -> bool:
    """Return whether a cookie was made with this token, and has not ended."""
    until, _, signature = value.partition(".")
    if len(value) > _LONGEST or not (until.isascii() and until.isdigit()):
        return False
    is_signed = hmac.compare_digest(signature.encode(), _signed(token, int(until)).encode())
    return is_signed and now_wall_ms < int(until) <= now_wall_ms + SESSION_MS


def cookie_in(headers: Mapping[str, str], name: str) -> str:
    """Return the value of a cookie in a request's headers; empty if there is none."""
    for part in headers.get("Cookie", "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return ""


def _signed(token: bytes, until_wall_ms: int) -> str:
    return hmac.new(token, b"pidgate session until %d" % until_wall_ms, sha256).hexdigest()
