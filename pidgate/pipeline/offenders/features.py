"""Features of sources and applications, from the whole sums of the kernels: every share and mean is computed here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pidgate.findings.cadence import MILLION, beat, best_beat, geometric_mean
from pidgate.findings.features import Span

Row = Mapping[str, Any]
"""Sums by name; None: nothing was summed."""


def source_features(sums: Row, beats: Iterable[Row], clocks: Mapping[int, list[Row]]) -> dict[str, Any]:
    """Return the SourceFeatures of a source that brought ids; `beats` and `clocks` are those of its gaps."""
    ids, used = sums["ids"], sums["used"]
    length_ms = max(1, sums["end_ms"] - sums["first_ms"])
    rhythm = best_beat((one["gap_ms"], beat(one, clocks[one["gap_ms"]])) for one in beats)
    for name in ("interval_ms", "pause_ms", "run_ms"):
        if name in rhythm:
            rhythm[name] = int(rhythm[name])
    return {
        "new_ids": sums["new_ids"],
        "refused_ids": sums["refused_ids"],
        "used": used,
        "one_request": _share(sums["one_request"], used),
        "two_requests": _share(sums["two_requests"], used),
        "requests": _share(sums["requests"], used),
        "short_lived": _share(sums["short_lived"], used),
        "life_ms": int(geometric_mean(sums["log_life"], used)) if used else None,
        "failed": _share(sums["failed"], used),
        "error_code": sums["error_code"],
        "transactional": sums["transactional"] / ids,
        "names": sums["names"],
        "connections": sums["connections"] / ids,
        "alive": sums["lives_ms"] / length_ms,
        "active_ms": length_ms,
        "resets": _share(sums["cut"], sums["closed"]),
        **rhythm,
    }


def app_features(sums: Row, span: Span) -> dict[str, Any]:
    """Return the AppFeatures of an application's calm producers."""
    late, over = sums["late_ids"], sums["over_ids"]
    return {
        **{name: sums[name] for name in _COUNTED},
        "late_long": _share(sums["late_long"], late),
        "over_life_ms": int(geometric_mean(sums["log_over_life"], over)) if over else None,
        "long_time": sums["long_ms"] / max(1, sums["lives_ms"]),
        "alive": sums["lives_ms"] / max(1, sums["end_ms"] - sums["first_ms"]),
        "starts_rhythm": _concentration(sums["starts_across"], sums["starts_up"], late),
        "ends_rhythm": _concentration(sums["ends_across"], sums["ends_up"], over),
        "alive_at_address": sums["lives_at_address"] / sums["length_at_address"],
        "alive_at_client_id": sums["lives_at_client_id"] / sums["length_at_client_id"],
    }


_COUNTED = (
    "ids", "new_ids", "late_ids", "long_ids", "met_at_address", "met_at_client_id", "sessions", "replacements",
    "replaced_ids", "instances", "growths", "alive_most", "alive_least",
)  # fmt: skip


def _share(part: int | None, whole: int | None) -> float | None:
    return (part or 0) / whole if whole else None


def _concentration(across: int | None, up: int | None, count: int) -> float | None:
    """Return how far times keep to one hour of the day: 0 not at all, 1 always the same moment."""
    return math.hypot(across or 0, up or 0) / MILLION / count if count else None
