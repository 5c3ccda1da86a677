"""Families of client ids: `producer-17` and `producer-18` are both `producer-*`. Pure."""

from __future__ import annotations

import re
from typing import Final

ANYTHING: Final = "*"
"""A counted or random part of a client id."""
OWN_STORY: Final = 8
"""New ids that make a place, an address or a family a source of its own: fewer show no rhythm."""

_UUID: Final = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_POD: Final = r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}(?=-|$)"
"""The letters in Kubernetes' pod and replica set names: no vowels, so no words."""
_NUMBERED: Final = r"(?<![A-Za-z0-9])([A-Za-z]+)[0-9]+(?![A-Za-z0-9])"
_DRAWN: Final = r"(?<![A-Za-z0-9])[A-Za-z]*[0-9][A-Za-z0-9]*(?![A-Za-z0-9])"

_REPLACEMENTS: Final = [
    (re.compile(expression), text)
    for expression, text in (
        (_UUID, ANYTHING),
        (_POD, f"-{ANYTHING}"),
        (_NUMBERED, f"\\1{ANYTHING}"),
        (_DRAWN, ANYTHING),
    )
]
"""Applied in order."""


def family(client_id: str) -> str:
    """Return a client id without its counted or random parts: a-7f9c-x2k4q -> a-*-*."""
    for expression, text in _REPLACEMENTS:
        client_id = expression.sub(text, client_id)
    return client_id
