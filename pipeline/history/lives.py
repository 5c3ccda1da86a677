"""A producer's life as numbers: one row each, columns beside each other, because there are millions.

Knows what a life is, not how one comes about (fleets.py, loops.py) nor what a gateway sees of it (observed.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pidgate.pipeline.history.cast import Deployment
from pidgate.pipeline.history.world import DAY_MS, HOUR_MS, World

CLOSE_REASONS = ("client", "reset", "idle", "drain", "upstream")
CLIENT, RESET, IDLE, DRAIN = 0, 1, 2, 3


@dataclass
class Lives:
    """`identity`: lives of one number have one producer id (a transactional id that is kept), else -1.
    `requests`: what it sends in all; -1: it goes on at the pace of its deployment. `error`: the code that ended it.
    `n`: number of the producer in its process. `pod`: which pod, and so which address.
    """

    start_ms: NDArray[np.int64]
    end_ms: NDArray[np.int64]
    user: NDArray[np.int32]
    deployment: NDArray[np.int16]
    pod: NDArray[np.int64]
    n: NDArray[np.int64]
    identity: NDArray[np.int64]
    epoch: NDArray[np.int32]
    requests: NDArray[np.int64]
    error: NDArray[np.int16]
    close: NDArray[np.int8]
    healthy: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start_ms)

    @classmethod
    def of(
        cls, deployment: Deployment, start_ms: Any, end_ms: Any, pod: Any, n: Any = 0, **more: Any
    ) -> Self:
        """Return lives of one deployment; defaults are those of a healthy process that ends in peace."""
        size = len(start_ms)
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
        return cls(
            **{name: np.broadcast_to(np.asarray(given[name]), size).astype(kind) for name, kind in _KINDS}
        )

    def where(self, chosen: Any) -> Self:
        return type(self)(**{one.name: getattr(self, one.name)[chosen] for one in fields(self)})

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        if not parts:
            return cls(**{name: np.zeros(0, kind) for name, kind in _KINDS})
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name, _ in _KINDS})


_KINDS: tuple[tuple[str, Any], ...] = (
    ("start_ms", np.int64), ("end_ms", np.int64), ("user", np.int32), ("deployment", np.int16), ("pod", np.int64),
    ("n", np.int64), ("identity", np.int64), ("epoch", np.int32), ("requests", np.int64), ("error", np.int16),
    ("close", np.int8), ("healthy", np.bool_),
)  # fmt: skip


def activity(world: World, busy_hour: Any, evenness: Any, at_ms: Any) -> NDArray[np.float64]:
    """Return the load at a time, around 1: a curve of the day, and little on weekends and holidays."""
    at = np.asarray(at_ms)
    hour = (at % DAY_MS) / HOUR_MS
    curve = evenness + (1 - evenness) * 2.0 * np.clip(np.cos((hour - busy_hour) / 12 * np.pi), 0, None)
    day = np.clip((at - world.begin_ms) // DAY_MS, 0, world.days - 1)
    return np.asarray(curve * np.where(world.free_days[day], 0.15 + 0.85 * evenness, 1.0))
