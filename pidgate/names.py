"""Names chosen by clients, cut to a bounded length: client ids, users, transactional ids. PURE.

A name is bounded once, at its entry. Copies in tables, events and logs are then never longer. Imports nothing
of pidgate.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

LONGEST_NAME: Final = 255
"""In characters. A topic's name has at most 249, and names chosen by people are shorter."""

_DIGITS: Final = 16


def bounded(name: str) -> str:
    """Return the name; if it is longer than LONGEST_NAME, its beginning and a hash of the whole name.

    Long names with the same beginning therefore stay distinct, and a bounded name stays unchanged.
    """
    if len(name) <= LONGEST_NAME:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGITS // 2).hexdigest()
    return f"{name[: LONGEST_NAME - _DIGITS - 1]}~{digest}"
