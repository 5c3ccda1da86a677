"""Names chosen by clients, bounded and escaped: client ids, users, transactional ids. PURE.

A name is bounded once, at its entry. Copies in tables, events and logs are then never longer. Tables, metrics and
commands show it escaped. Imports nothing of pidgate.
"""

from __future__ import annotations

import re
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


_ESCAPED: Final = re.compile(r"\\(\\|[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|(?=\())")


def escaped(name: str) -> str:
    """Return the name as tables, metrics and commands show it: printable, and different for each name.

    What begins with a parenthesis is no name but an entity such as "(default)", so a name gets a backslash there.
    """
    text = "".join(
        sign if sign.isprintable() and sign != "\\" else sign.encode("unicode_escape").decode()
        for sign in name
    )
    return f"\\{text}" if text.startswith("(") else text


def unescaped(text: str) -> str:
    """Return the name that is shown so, for commands. A backslash that escapes nothing is a part of the name."""
    return _ESCAPED.sub(lambda found: found[0].encode().decode("unicode_escape") if found[1] else "", text)
