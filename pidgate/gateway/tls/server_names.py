"""Server names requested by clients (SNI, RFC 6066), recorded per connection."""

from __future__ import annotations

import ssl
from typing import Final

_ATTRIBUTE: Final = "name_asked_for"


def note_names(context: ssl.SSLContext) -> None:
    """Record the server names that clients of this context request."""
    context.sni_callback = _note


def _note(tls: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    setattr(tls, _ATTRIBUTE, name)


def name_asked_for(tls: ssl.SSLObject) -> str:
    """Return the requested server name; empty if the client connected to an address and sent none."""
    name: str | None = getattr(tls, _ATTRIBUTE, None)
    return name or ""
