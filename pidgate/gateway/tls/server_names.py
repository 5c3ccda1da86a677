"""The name that a client asked for when it set up TLS (SNI, RFC 6066), noted at its own side of the connection."""

from __future__ import annotations

import ssl
from typing import Final

_ATTRIBUTE: Final = "name_asked_for"


def note_names(context: ssl.SSLContext) -> None:
    """Note the names that clients of this context ask for."""
    context.sni_callback = _note


def _note(tls: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    setattr(tls, _ATTRIBUTE, name)


def name_asked_for(tls: ssl.SSLObject) -> str:
    """Return the name; empty: the client asked for none, as those do that connect to an address."""
    name: str | None = getattr(tls, _ATTRIBUTE, None)
    return name or ""
