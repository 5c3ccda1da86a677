"""Numbers and times in the report: units.py, with a sign for unknown values, in UTC. Pure; knows no HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from math import floor

from pidgate import units

NOTHING = "-"


def _if_known(write: Callable[[float], str]) -> Callable[[float | None], str]:
    return lambda number: NOTHING if number is None else write(number)


count = _if_known(units.number)
duration = _if_known(units.about_duration)
size = _if_known(units.about_size)


def rate(per_window: float | None) -> str:
    """Format a quota: None is no limit, 0 admits no new id."""
    return "none" if per_window is None else count(per_window)


def share(part: float | None) -> str:
    """Format a share of 1 as per cent; never rounded up to 100, small ones with two digits."""
    if part is None:
        return NOTHING
    percent = 100 * part
    if 0 < percent < 0.1:
        return f"{percent:.2g} %" if percent >= 1e-4 else "under 0.0001 %"
    if 99.9 < percent < 100:
        return f"{min(99.99, floor(100 * percent) / 100):.2f} %"
    return f"{percent:.1f} %".replace(".0 %", " %")


def moment(time_ms: int | None) -> str:
    """Format a time as 2026-11-21 07:00 UTC, "-" for None."""
    return NOTHING if time_ms is None else f"{units.moment(time_ms, UTC)} UTC"


def listed(words: Sequence[str], at_most: int = 5) -> str:
    """Join words: "a, b and c", "a, b and 7 more"; "nobody" for none."""
    return units.listed(words, at_most) or "nobody"


def sentence(text: str) -> str:
    """Add a full stop to a sentence without one."""
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def evidence(name: str, value: str) -> tuple[str, str]:
    """Format a feature of the detector: "interval_ms", "58000" is "interval", "58 s"."""
    try:
        number = float(value)
    except ValueError:
        return name.replace("_", " "), value
    if name.endswith("_ms"):
        return name.removesuffix("_ms").replace("_", " "), duration(number)
    return name.replace("_", " "), count(number) if abs(number) >= 10 else f"{number:.3g}"
