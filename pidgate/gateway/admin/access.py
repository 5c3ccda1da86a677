"""Authorization of quota requests on the admin address.

Reads need the token if one is configured, because responses include the author and reason of changes. Writes
need `admin.writable` and always a token: that of `admin.token_file`, or the one the gateway creates for its
own system user. Cross-site requests are refused with any token, since browsers send them for other sites.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from pidgate.gateway.config.local_token import LocalToken
from pidgate.gateway.config.settings import AdminSettings
from pidgate.gateway.config.token_file import TokenUnreadable, token_now

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
        self.names = OwnNames(admin.bind.host, admin.hosts)
        self.local = LocalToken() if admin.writable and self._token_file is None else None
        """The local token for writes; None if a token is configured or writing is disabled."""

    @property
    def is_writable(self) -> bool:
        return self._admin.writable

    def check_read(self, headers: Mapping[str, str]) -> Refusal | None:
        """Check a read request; None if it is allowed. `headers` ignore case."""
        return self._across_sites(headers) or self._without_token(headers)

    def check_write(self, headers: Mapping[str, str]) -> Refusal | None:
        """Check a request that changes quotas; None if it is allowed."""
        refusal = self.check_read(headers)
        if refusal is not None:
            return refusal
        if not self._admin.writable:
            return Refusal(
                HTTPStatus.FORBIDDEN,
                "quotas cannot be changed over this address; set admin.writable: true in the gateway's file "
                "and restart it, or use Kafka's admin API",
            )
        if self.local is not None and not _shows(self.local.token, headers):
            return Refusal(HTTPStatus.UNAUTHORIZED, _where(self.local))
        # Other sites can send forms or text without a preflight, but not JSON.
        kind = headers.get("Content-Type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send Content-Type: application/json")
        return None

    def _across_sites(self, headers: Mapping[str, str]) -> Refusal | None:
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

    def _without_token(self, headers: Mapping[str, str]) -> Refusal | None:
        if self._token_file is None:
            return None
        try:
            wanted = token_now(self._token_file)
        except TokenUnreadable as error:
            return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        if not headers.get("Authorization", "").startswith(_SCHEME):
            return Refusal(
                HTTPStatus.UNAUTHORIZED, "needs the token of admin.token_file: Authorization: Bearer TOKEN"
            )
        if not _shows(wanted, headers):
            return Refusal(
                HTTPStatus.UNAUTHORIZED, "the token is not the one in the gateway's admin.token_file"
            )
        return None


def _shows(wanted: bytes, headers: Mapping[str, str]) -> bool:
    given = headers.get("Authorization", "")
    shown = given.removeprefix(_SCHEME).strip().encode(errors="replace")
    return given.startswith(_SCHEME) and hmac.compare_digest(shown, wanted)


def _where(local: LocalToken) -> str:
    if local.failure:
        return f"the gateway's own token could not be written ({local.failure}); write admin.token_file"
    return f"needs the gateway's own token; commands of its user find it in {local.path}"
