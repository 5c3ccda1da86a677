"""A recording's clock, stretched: what was played in two minutes as if it had lasted hours.

For patterns that live over hours and were recorded in minutes. Moments move away from the first one by the factor, and
every duration that clients and gateways told of grows with it; what was counted stays. Not for a replay: balances of
buckets are what they were at the true pace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from pidgate.events.definitions import Event

_E = TypeVar("_E", bound=Event)

MOMENTS = ("wall_time_ms", "first_ms", "last_ms", "grace_until_wall_ms", "set_wall_ms")
"""By the wall clock."""
DURATIONS = ("waited_ms", "throttle_time_ms")


def stretched(events: Iterable[_E], factor: float, *, begin_ms: int) -> Iterator[_E]:
    """Each event with its times `factor` times as far from `begin_ms`, the wall time at which the recording began.

    Raises ValueError for a factor that is not above 0.
    """
    if factor <= 0:
        raise ValueError(f"a clock cannot run {factor} times as fast")
    for event in events:
        yield _stretched(event, factor, begin_ms)


def _stretched(event: _E, factor: float, begin_ms: int) -> _E:
    changes: dict[str, Any] = {}
    moved_ms = begin_ms + round((event.wall_time_ms - begin_ms) * factor)
    for field in fields(event):
        value = getattr(event, field.name)
        if value is None:
            continue
        if field.name in MOMENTS:
            changes[field.name] = begin_ms + round((value - begin_ms) * factor)
        elif field.name in DURATIONS:
            changes[field.name] = round(value * factor)
        elif field.name == "seconds":
            changes[field.name] = value * factor
    # The same machine's monotonic clock goes on at the same pace as its wall clock.
    changes["decision_time_ms"] = event.decision_time_ms + moved_ms - event.wall_time_ms
    return replace(event, **changes)
