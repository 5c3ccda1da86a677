"""The names by which the admin address may be called.

A page of another site may point its own name at this address (DNS rebinding), and then reads what it shows: the
browser takes both for one site. It cannot do so with an address, with localhost, or with a name that is not its own.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable


class OwnNames:
    """Names of one admin address: its own host, the machine's, and those that are configured."""

    def __init__(self, bind_host: str, hosts: Iterable[str] = ()) -> None:
        self._names = {name.lower() for name in ("localhost", bind_host, socket.gethostname(), *hosts)}

    def has(self, host: str) -> bool:
        """Return whether a Host header names this gateway: by an address, or by one of its names."""
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]
        name = name.strip("[]").rstrip(".").lower()
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
