"""Numbers, times and patterns as people read them: thousands separators, units, UTC.

Pure; knows nothing of HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import floor

NOTHING = "-"
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000


def count(number: float | None) -> str:
    """12,345; small fractions keep a digit."""
    if number is None:
        return NOTHING
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:,.1f}" if abs(number) >= 1 else f"{number:.2g}"


def rate(per_window: float | None) -> str:
    """A quota: none is no limit, 0 lets no new id in."""
    return "none" if per_window is None else count(per_window)


def counted(number: float, one: str, many: str | None = None) -> str:
    """ "1 user", "2,000 users"."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def share(part: float | None) -> str:
    """A share of 1 as per cent; never rounded up to all, small ones with two digits."""
    if part is None:
        return NOTHING
    percent = 100 * part
    if 0 < percent < 0.1:
        return f"{percent:.2g} %" if percent >= 1e-4 else "under 0.0001 %"
    if 99.9 < percent < 100:
        return f"{min(99.99, floor(100 * percent) / 100):.2f} %"
    return f"{percent:.1f} %".replace(".0 %", " %")


def duration(time_ms: float | None) -> str:
    """The two greatest units: "850 ms", "4.2 s", "2 h 5 min", "29 d 23 h"."""
    if time_ms is None:
        return NOTHING
    if time_ms < _SECOND:
        return f"{time_ms:.0f} ms"
    if time_ms < _MINUTE:
        return f"{time_ms / _SECOND:.1f} s".replace(".0 s", " s")
    for great, great_word, small, small_word in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", _SECOND, "s"),
    ):
        if time_ms >= great:
            whole, rest = divmod(int(time_ms), great)
            return f"{whole:,} {great_word}" + (f" {rest // small} {small_word}" if rest >= small else "")
    raise AssertionError(time_ms)


def size(in_bytes: float | None) -> str:
    """In units of 1,024."""
    if in_bytes is None:
        return NOTHING
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if in_bytes >= scale:
            return f"{in_bytes / scale:,.1f} {unit}"
    return f"{in_bytes:,.0f} bytes"


def moment(time_ms: int | None) -> str:
    """2026-11-21 07:00 UTC."""
    if time_ms is None:
        return NOTHING
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def no(number: float, one: str, many: str | None = None) -> str:
    """The same in a sentence that denies: "no user", "1 user", "2,000 users"."""
    return counted(number, one, many) if number else f"no {one}"


def listed(words: Sequence[str], at_most: int = 5) -> str:
    """ "a, b and c", "a, b and 7 more"."""
    shown = list(words[:at_most])
    if len(words) > at_most:
        shown.append(f"{count(len(words) - at_most)} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "nobody"


def sentence(text: str) -> str:
    """With a capital and an end, where it has none."""
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def evidence(name: str, value: str) -> tuple[str, str]:
    """A feature of the detector as people read it: "interval_ms", "58000" is "interval", "58 s"."""
    try:
        number = float(value)
    except ValueError:
        return name.replace("_", " "), value
    if name.endswith("_ms"):
        return name.removesuffix("_ms").replace("_", " "), duration(number)
    return name.replace("_", " "), count(number) if abs(number) >= 10 else f"{number:.3g}"
