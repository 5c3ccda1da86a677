"""Checks of the configured TLS files: errors that prevent the start, and upcoming expiry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.config.source import KeyPath
from pidgate.gateway.config.tls_settings import ClusterTlsSettings, ServerTlsSettings
from pidgate.gateway.tls.certificate import NotACertificate, Validity, validities
from pidgate.gateway.tls.contexts import TlsUnusable, client_context, server_context, text_of

SOON: Final = timedelta(days=14)
"""Warning period before expiry. 90 day certificates are renewed 30 days before they expire."""

Finding = tuple[KeyPath, str]
TlsSection = ServerTlsSettings | ClusterTlsSettings


def sections(settings: Settings) -> Iterator[tuple[KeyPath, TlsSection]]:
    """Yield every configured TLS section with its path."""
    if settings.cluster.tls is not None:
        yield ("cluster", "tls"), settings.cluster.tls
    for index, listener in enumerate(settings.listeners):
        if listener.tls is not None:
            yield ("listeners", index, "tls"), listener.tls
    if settings.admin.tls is not None:
        yield ("admin", "tls"), settings.admin.tls


def unusable(settings: Settings) -> Iterator[TlsUnusable]:
    """Yield the reasons that prevent the start with the current files, at most one per section."""
    for path, section in sections(settings):
        try:
            if isinstance(section, ClusterTlsSettings):
                client_context(section, path)
            else:
                server_context(section, path)
        except TlsUnusable as error:
            yield error


def warnings(settings: Settings) -> Iterator[Finding]:
    """Yield warnings about certificates that are invalid now or soon. Missing files are skipped."""
    now = datetime.now(UTC)
    for path, section in sections(settings):
        names = ["cert_file", "ca_file", "client_ca_file"]
        for name in names:
            file = getattr(section, name, "")
            if not file:
                continue
            try:
                found = validities(text_of(file, (*path, name)))
            except (TlsUnusable, NotACertificate):
                continue
            # A CA bundle may contain expired certificates; it is usable while one is valid.
            validity = found[0] if name == "cert_file" else max(found, key=lambda one: one.ends)
            text = _text(validity, now)
            if text:
                yield (*path, name), f"{file} {text}"


def _text(validity: Validity, now: datetime) -> str:
    """Return the warning about a certificate, or an empty string."""
    if now > validity.ends:
        return f"expired on {validity.ends:%Y-%m-%d %H:%M} UTC, and peers reject it; renew it"
    if now < validity.begins:
        return f"is not valid before {validity.begins:%Y-%m-%d %H:%M} UTC; check the clock of this machine"
    if validity.ends - now < SOON:
        days = (validity.ends - now).days
        return f"expires on {validity.ends:%Y-%m-%d %H:%M} UTC, in {days} days; renew it (no restart needed)"
    return ""
