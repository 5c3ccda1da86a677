"""Authorization on the admin address.

The token is that of `admin.token_file`, or the one that the gateway creates for its own system user. Writes
need `admin.writable` and always the token. Reads need it if it is configured, because responses include the
author and reason of changes, and wherever other machines can reach the address. There /metrics needs it too,
or the scrape token, which opens metrics alone. Cross-site requests are refused with any token, since browsers
send them for other sites. The status page exchanges the token once for a cookie (sessions.py), which then counts
as the token.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from pidgate.gateway.admin.sessions import SESSION_MS, cookie_in, cookie_name, is_session, make_session
from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config.local_token import LocalToken
from pidgate.gateway.config.settings import AdminSettings
from pidgate.gateway.config.token_file import TokenUnreadable, scrape_token_file, token_in, token_now
from pidgate.units import is_loopback

_SCHEME: Final = "Bearer "


@dataclass(frozen=True, slots=True)
class Refusal:
    """HTTP status and text of a refused request."""

    status: HTTPStatus
    reason: str


class OwnNames:
    """Accepted Host names of an admin address: its own host, the machine's names, and configured ones.

    Protects against DNS rebinding: a page can point its own name at this address, and the browser then lets
    it read responses. IP addresses, localhost and the accepted names cannot be rebound.
    """

    def __init__(self, bind_host: str, hosts: Iterable[str] = ()) -> None:
        self._names = {name.lower() for name in ("localhost", bind_host, socket.gethostname(), *hosts)}

    def includes_host(self, host: str) -> bool:
        """Return whether a Host header is an IP address or an accepted name."""
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]
        name = name.strip("[]").rstrip(".").lower()
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class Access:
    """Access rules of one admin address."""

    def __init__(self, admin: AdminSettings) -> None:
        self._admin = admin
        self._token_file = Path(admin.token_file) if admin.token_file else None
        self._is_loopback = is_loopback(admin.bind.host)
        self.port = admin.bind.port
        """The port in the cookie's name; that of the socket, once it listens."""
        self.names = OwnNames(admin.bind.host, admin.hosts)
        makes_token = self._token_file is None and (admin.writable or not self._is_loopback)
        self.local = LocalToken() if makes_token else None
        """The gateway's own token; None if one is configured or none is needed."""

    @property
    def is_writable(self) -> bool:
        return self._admin.writable

    def check_read(self, headers: Mapping[str, str]) -> Refusal | None:
        """Check a read request; None if it is allowed. `headers` ignore case."""
        is_open = self._is_loopback and self._token_file is None
        return self._check_site(headers) or (None if is_open else self._check_token(headers))

    def check_scrape(self, headers: Mapping[str, str]) -> Refusal | None:
        """Check a request for metrics; None if it is allowed."""
        if self._is_loopback:
            return None
        if self._token_file is not None:
            with contextlib.suppress(OSError, TokenUnreadable):
                if _has_token(token_in(scrape_token_file(self._token_file)), headers):
                    return None
        return self._check_token(headers)

    def check_write(self, headers: Mapping[str, str]) -> Refusal | None:
        """Check a request that changes quotas; None if it is allowed."""
        return self.check_acting(headers) or self.check_body(headers)

    def check_acting(self, headers: Mapping[str, str]) -> Refusal | None:
        """Check whether the sender may change quotas; None if it may."""
        refusal = self.check_read(headers)
        if refusal is not None:
            return refusal
        if not self._admin.writable:
            return Refusal(
                HTTPStatus.FORBIDDEN,
                "quotas cannot be changed over this address; set admin.writable: true in the gateway's file "
                "and restart it, or use Kafka's admin API",
            )
        return None if self.local is None else self._check_token(headers)

    def check_body(self, headers: Mapping[str, str]) -> Refusal | None:
        """Check the sender's site and the type of its body; None if they are right."""
        if (refusal := self._check_site(headers)) is not None:
            return refusal
        # Other sites can send forms or text without a preflight, but not JSON.
        kind = headers.get("Content-Type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send Content-Type: application/json")
        return None

    def begin_session(self, shown: str) -> str | Refusal:
        """Exchange a token for the value of a cookie."""
        wanted = self._token_in_force()
        if isinstance(wanted, Refusal):
            return wanted
        if not hmac.compare_digest(shown.strip().encode(errors="replace"), wanted):
            return Refusal(HTTPStatus.UNAUTHORIZED, "this is not the token of this gateway")
        return make_session(wanted, wall_ms() + SESSION_MS)

    def has_session(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request shows a session's cookie."""
        wanted = self._token_in_force()
        cookie = cookie_in(headers, cookie_name(self.port))
        return not isinstance(wanted, Refusal) and is_session(wanted, cookie, wall_ms())

    def _token_in_force(self) -> bytes | Refusal:
        """Return the token in force."""
        if self.local is not None:
            return self.local.token
        if self._token_file is None:
            return Refusal(HTTPStatus.FORBIDDEN, "this address is read-only; set admin.writable: true")
        try:
            return token_now(self._token_file)
        except TokenUnreadable as error:
            return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _check_site(self, headers: Mapping[str, str]) -> Refusal | None:
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return Refusal(HTTPStatus.FORBIDDEN, f"cross-site requests from {origin[:100]} are refused")
        return None if self._token_file is not None else self.check_host(host)

    def check_host(self, host: str) -> Refusal | None:
        """Check the Host header. Without a token this is the only protection against pages of other sites."""
        if self.names.includes_host(host):
            return None
        return Refusal(
            HTTPStatus.FORBIDDEN,
            f"{host[:100]!r} is not a name of this gateway; use its address, or add the name to admin.hosts",
        )

    def _check_token(self, headers: Mapping[str, str]) -> Refusal | None:
        wanted = self._token_in_force()
        if isinstance(wanted, Refusal):
            return wanted
        if _has_token(wanted, headers) or self.has_session(headers):
            return None
        if self.local is not None:
            return Refusal(HTTPStatus.UNAUTHORIZED, _needs_local_token(self.local))
        if not headers.get("Authorization", "").startswith(_SCHEME):
            return Refusal(
                HTTPStatus.UNAUTHORIZED, "needs the token of admin.token_file: Authorization: Bearer TOKEN"
            )
        return Refusal(HTTPStatus.UNAUTHORIZED, "the token is not the one in the gateway's admin.token_file")


def _has_token(wanted: bytes, headers: Mapping[str, str]) -> bool:
    given = headers.get("Authorization", "")
    shown = given.removeprefix(_SCHEME).strip().encode(errors="replace")
    return given.startswith(_SCHEME) and hmac.compare_digest(shown, wanted)


def _needs_local_token(local: LocalToken) -> str:
    if local.failure:
        return f"the gateway's own token could not be written ({local.failure}); write admin.token_file"
    return f"needs the gateway's own token; commands of its user find it in {local.path}"
