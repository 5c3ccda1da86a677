"""Authorization of requests for quotas on the admin address.

Reading needs the token when there is one: answers name who set what and why. Setting needs `admin.writable` as well.
Browsers are a way in for pages of other sites; cross-site requests are refused whatever token they carry.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from pidgate.gateway.config.settings import AdminSettings
from pidgate.gateway.config.token_file import TokenFile, TokenUnreadable
from pidgate.units import is_loopback

_SCHEME: Final = "Bearer "


@dataclass(frozen=True, slots=True)
class Refusal:
    """The HTTP status and text of a refused request."""

    status: HTTPStatus
    reason: str


class Access:
    """The rules of one admin address."""

    def __init__(self, admin: AdminSettings) -> None:
        self._admin = admin
        self._token = TokenFile(Path(admin.token_file)) if admin.token_file else None

    @property
    def is_writable(self) -> bool:
        return self._admin.writable

    def reading(self, headers: Mapping[str, str]) -> Refusal | None:
        """Check a request that reads; `headers` ignore case. Returns None when it is allowed."""
        return self._across_sites(headers) or self._without_token(headers)

    def writing(self, headers: Mapping[str, str]) -> Refusal | None:
        """Check a request that changes quotas. Returns None when it is allowed."""
        refusal = self.reading(headers)
        if refusal is not None:
            return refusal
        if not self._admin.writable:
            return Refusal(
                HTTPStatus.FORBIDDEN,
                "quotas cannot be set over this address; write admin.writable: true into the gateway's file "
                "and start it again, or set them over Kafka's admin API",
            )
        # A page of another site can send a form or text without asking; JSON it cannot.
        kind = headers.get("Content-Type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send Content-Type: application/json")
        return None

    def _across_sites(self, headers: Mapping[str, str]) -> Refusal | None:
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return Refusal(HTTPStatus.FORBIDDEN, f"a page of {origin[:100]} may not ask here")
        if self._token is None and is_loopback(self._admin.bind.host) and not self._is_own_name(host):
            # A site may point its own name at 127.0.0.1: then its pages are of the same origin.
            return Refusal(
                HTTPStatus.FORBIDDEN,
                f"this address is not called {host[:100]!r}; ask for {self._admin.bind}, or set admin.token_file",
            )
        return None

    def _is_own_name(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        name = name.strip("[]").lower()
        if name in ("localhost", self._admin.bind.host.lower()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _without_token(self, headers: Mapping[str, str]) -> Refusal | None:
        if self._token is None:
            return None
        try:
            wanted = self._token.read()
        except TokenUnreadable as error:
            return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        given = headers.get("Authorization", "")
        if not given.startswith(_SCHEME):
            return Refusal(
                HTTPStatus.UNAUTHORIZED, "needs the token of admin.token_file: Authorization: Bearer TOKEN"
            )
        if not hmac.compare_digest(given.removeprefix(_SCHEME).strip().encode(errors="replace"), wanted):
            return Refusal(
                HTTPStatus.UNAUTHORIZED, "the token is not the one in the gateway's admin.token_file"
            )
        return None
