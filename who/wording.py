"""Numbers, times and names as people read them. Pure: the time zone is given."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Final

UNIDENTIFIED: Final = "(unidentified)"
MOST_SIGNS: Final = 60
"""Of a name; client ids may have 32 KiB."""
_SOFTWARE: Final = {"apache-kafka-java": "Java"}
_UNITS: Final = (
    (84_600_000, 86_400_000, "d"),
    (3_570_000, 3_600_000, "h"),
    (59_500, 60_000, "min"),
    (1_000, 1_000, "s"),
)
"""From when on, how long, name: what would round to 60 min is 1 h."""


def duration(milliseconds: int) -> str:
    """About how long: 350 ms, 4 s, 1.2 s, 12 min, 3.5 h."""
    for from_ms, unit_ms, unit in _UNITS:
        if milliseconds >= from_ms:
            value = milliseconds / unit_ms
            text = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0")
            return f"{text} {unit}"
    return f"{milliseconds} ms"


def clock(wall_ms: int, zone: tzinfo | None) -> str:
    """14:02; `zone` None: the machine's."""
    return datetime.fromtimestamp(wall_ms / 1_000, zone).strftime("%H:%M")


def moment(wall_ms: int, zone: tzinfo | None) -> str:
    """With the day: 2026-11-21 14:02."""
    return datetime.fromtimestamp(wall_ms / 1_000, zone).strftime("%Y-%m-%d %H:%M")


def software(name_and_version: str) -> str:
    """As told in ApiVersions ("apache-kafka-java 3.7.0"), in the words people use ("Java 3.7.0")."""
    name, _, version = name_and_version.partition(" ")
    return shown(f"{_SOFTWARE.get(name, name)} {version}".strip())


def user(name: str) -> str:
    return shown(name) or UNIDENTIFIED


def shown(name: str) -> str:
    """A name that comes from outside, fit for a terminal: nothing in it moves the cursor, and it has an end."""
    text = "".join(sign if sign.isprintable() else _escaped(sign) for sign in name)
    return text if len(text) <= MOST_SIGNS else text[: MOST_SIGNS - 1] + "\u2026"


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def counted(number: int, one: str, more: str = "") -> str:
    """1 id, 4,812 ids."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def listed(names: Sequence[str], shown: int = 2) -> str:
    """a, a and b, a, b and 3 more."""
    if len(names) <= 1:
        return "".join(names)
    if len(names) <= shown:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:shown])} and {len(names) - shown:,} more"
