"""Lives of producers as rows of a numpy record array, because there are millions.

Knows what a life is, but neither its origin (fleets.py, loops.py) nor its events (observed.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.history.cast import Deployment
from tools.history.world import DAY_MS, HOUR_MS, World

CLOSE_REASONS = ("client", "reset", "idle", "drain", "upstream")
CLIENT, RESET, IDLE, DRAIN = 0, 1, 2, 3

Lives = np.recarray[Any, np.dtype[np.void]]
_COLUMNS: list[tuple[str, type]] = [
    ("start_ms", np.int64),
    ("end_ms", np.int64),
    ("user", np.int32),
    ("deployment", np.int16),
    ("pod", np.int64),  # index of the pod, which determines the address
    ("n", np.int64),  # number of the producer in its process
    (
        "identity",
        np.int64,
    ),  # lives with the same number share one producer id (a stable transactional id), else -1
    ("epoch", np.int32),
    ("requests", np.int64),  # total requests; -1: at the pace of its deployment
    ("error", np.int16),  # the error code that ended it
    ("close", np.int8),
    ("healthy", np.bool_),
    ("is_lasting", np.bool_),  # planned for the whole history, not generated for one day
    # Set after the brokers' assignment (shard.py).
    ("producer_id", np.int64),
    ("node_id", np.int64),
    ("opens", np.bool_),  # first visible life of its id
]


def lives_of(deployment: Deployment, start_ms: Any, end_ms: Any, pod: Any, n: Any = 0, **more: Any) -> Lives:
    """Return lives of one deployment; defaults are those of a healthy process that ends normally."""
    given: dict[str, Any] = {
        "identity": -1,
        "epoch": 0,
        "requests": -1,
        "error": 0,
        "close": CLIENT,
        "healthy": not deployment.is_harmful,
        **more,
        "start_ms": start_ms,
        "end_ms": end_ms,
        "user": deployment.user,
        "deployment": deployment.number,
        "pod": pod,
        "n": n,
    }
    made = _empty(len(start_ms))
    for name, values in given.items():
        made[name] = values
    return made


def together(parts: Sequence[Lives]) -> Lives:
    """Return the concatenated lives."""
    return np.concatenate([_empty(0), *parts]).view(np.recarray)


def lasting(world: World, parts: Sequence[Lives]) -> Lives:
    """Return the lives that overlap the world's days, marked as planned for the whole history."""
    lives = together(parts)
    lives.is_lasting = True
    overlaps = (lives.end_ms > world.begin_ms) & (lives.start_ms < world.end_ms)
    return chosen(lives, overlaps & (lives.end_ms > lives.start_ms))


def chosen(lives: Lives, which: Any) -> Lives:
    """Return the selected lives, by a mask or by indexes."""
    found: Lives = lives[which].view(np.recarray)
    return found


def in_order(lives: Lives) -> Lives:
    """Return the lives sorted by time."""
    return chosen(lives, np.lexsort((lives.pod, lives.deployment, lives.user, lives.start_ms)))


def _empty(size: int) -> Lives:
    return np.zeros(size, _COLUMNS).view(np.recarray)


def activity(world: World, busy_hour: Any, evenness: Any, at_ms: Any) -> NDArray[np.float64]:
    """Return the load at a time, around 1: a daily curve, low on weekends and holidays."""
    at = np.asarray(at_ms)
    hour = (at % DAY_MS) / HOUR_MS
    curve = evenness + (1 - evenness) * 2.0 * np.clip(np.cos((hour - busy_hour) / 12 * np.pi), 0, None)
    day = np.clip((at - world.begin_ms) // DAY_MS, 0, world.days - 1)
    return np.asarray(curve * np.where(world.free_days[day], 0.15 + 0.85 * evenness, 1.0))
