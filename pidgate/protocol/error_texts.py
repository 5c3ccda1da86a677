"""Error texts of brokers without the brokers' addresses. PURE.

A rejected change of a broker's configuration is answered with a text that quotes its listeners.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from pidgate.protocol import codec
from pidgate.protocol.frames import Buffer

WITH_ERROR_TEXTS: Final = frozenset({19, 20, 29, 30, 31, 33, 37, 43, 44, 45, 46, 57, 64, 80, 81, 94})
"""API keys of administration whose responses have an error text and no other rewriting."""

HIDDEN: Final = "(a broker)"
_NAME: Final = re.compile(r"(?<![0-9A-Fa-f:.])[0-9A-Fa-f:.]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*|[\w-]+(?:\.[\w-]+)*")
"""An IPv6 address, or a host name or IPv4 address without its port."""


def hide_hosts(
    api_key: int, api_version: int, buf: Buffer, start: int, end: int, hosts: Collection[str]
) -> bytes | None:
    """Return the framed response with HIDDEN for each host in its error texts. None: there is none.

    Raises MalformedFrame, and FrameTooLarge for a response with a host that is too long to be decoded.
    """
    found = bytes(buf[start:end])
    if len(found) <= codec.MAX_DECODED_BYTES:
        may_hold = any(host.encode() in found for host in hosts)
    else:
        may_hold = not set(hosts).isdisjoint(_NAME.findall(found.decode("latin-1")))
    if not may_hold:
        return None
    message = codec.decode_response(api_key, api_version, found, 0, len(found))
    if not _hide(message, frozenset(hosts)):
        return None
    return codec.encode_response(int.from_bytes(found[:4], "big", signed=True), message)


def _hide(node: Any, hosts: frozenset[str]) -> bool:
    """Replace the hosts in all error texts below; return whether there was one."""
    is_changed = False
    for field in node._struct._fields:
        value = getattr(node, field.name) if field.for_version_q(node.version) else None
        if value is None:
            continue
        if field.is_struct_array():
            for element in value:
                is_changed |= _hide(element, hosts)
        elif field.is_struct():
            is_changed |= _hide(value, hosts)
        elif field.name == "error_message":
            text = _NAME.sub(lambda name: HIDDEN if name[0] in hosts else name[0], value)
            is_changed |= text != value
            setattr(node, field.name, text)
    return is_changed
