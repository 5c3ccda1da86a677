"""Names that clients choose, cut to a length that may be kept: client ids, users, transactional ids. PURE.

A name is bounded where it enters, once; what is kept of it in tables, events and logs is then never longer.
Imports nothing of pidgate.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

LONGEST_NAME: Final = 255
"""Characters: of a topic 249 are allowed, and what people name is shorter."""

_DIGITS: Final = 16


def bounded(name: str) -> str:
    """Return the name; of a longer one than LONGEST_NAME its beginning and a hash of all of it.

    So two long names that begin alike stay two, and what is bounded already stays as it is.
    """
    if len(name) <= LONGEST_NAME:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGITS // 2).hexdigest()
    return f"{name[: LONGEST_NAME - _DIGITS - 1]}~{digest}"
