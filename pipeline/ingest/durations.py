"""Durations as people type them: 30s, 15m, 24h, 7d. Pure."""

from __future__ import annotations

import re

from pidgate.pipeline.errors import BadOption

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str, option: str) -> int:
    """Raises BadOption, which names the option."""
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text.strip())
    if found is None:
        raise BadOption(
            f"{option} {text}: a duration is a number and a unit of {', '.join(_UNITS_MS)}: 30s, 24h"
        )
    return int(found[1]) * _UNITS_MS[found[2]]
