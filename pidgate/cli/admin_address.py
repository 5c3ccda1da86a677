"""Admin addresses in options and files, and connections to them: HTTP, or HTTPS with a trusted CA."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pidgate import units
from pidgate.units import WILDCARD_HOSTS, Address

if TYPE_CHECKING:
    from pidgate.gateway.config.settings import AdminSettings

DEFAULT_ADMIN: Final = "127.0.0.1:9290"
_HTTPS: Final = "https://"


@dataclass(frozen=True, slots=True)
class AdminAddress:
    """The address of a gateway's admin site. `tls` None: HTTP."""

    address: Address
    tls: ssl.SSLContext | None = None

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection, which opens on its first request."""
        host, port = self.address
        host = "127.0.0.1" if host in WILDCARD_HOSTS else host
        if self.tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self.tls)


def of_text(text: str, ca_file: Path | None) -> AdminAddress:
    """Parse HOST:PORT or https://HOST:PORT. Raises ValueError, TlsUnusable."""
    address = units.address(text.removeprefix(_HTTPS).removesuffix("/"))
    if ca_file is None and not text.startswith(_HTTPS):
        return AdminAddress(address)
    return AdminAddress(address, _context(ca_file))


def of_settings(admin: AdminSettings) -> AdminAddress:
    """Return the admin address of the gateway with these settings, trusting its own certificate.

    Raises TlsUnusable.
    """
    if admin.tls is None:
        return AdminAddress(admin.bind)
    from pidgate.gateway.tls.contexts import pinned_context

    return AdminAddress(admin.bind, pinned_context(admin.tls.cert_file, ("admin", "tls")))


def cause_of(error: OSError | http.client.HTTPException) -> str:
    """Return why a request failed. `error` comes from http.client."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was refused: {error.verify_message}; name its CA with --ca-file"
    if isinstance(error, http.client.RemoteDisconnected | http.client.BadStatusLine):
        return "it closed without an answer; with TLS write https:// before it, or name its CA with --ca-file"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _context(ca_file: Path | None) -> ssl.SSLContext:
    # Its import takes as long as the rest of the command.
    from pidgate.gateway.config.tls_settings import ClusterTlsSettings
    from pidgate.gateway.tls.contexts import client_context

    tls = ClusterTlsSettings() if ca_file is None else ClusterTlsSettings(ca_file=str(ca_file))
    return client_context(tls, ("--ca-file",))
