"""What a soak does for how long. Values only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

REMEMBERS: Final = 6
"""So often everything that the filters hold is forgotten in a soak; the first time is the warm-up."""
LEAST_SAMPLES: Final = 240
MOST_MB_PER_H: Final = 2.0
"""Of RSS: a process that grows by it takes months to be noticed."""
MOST_EACH_PER_H: Final = 20.0
"""Of descriptors and tasks: what leaks with each client that is started again is more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakPlan:
    """`leak_mb_per_h`: what is injected, to see it caught."""

    hours: float
    leak_mb_per_h: float = 0.0
    folder: Path

    @property
    def duration_s(self) -> float:
        return self.hours * 3600

    @property
    def remember_s(self) -> int:
        return max(10, round(self.duration_s / REMEMBERS))

    @property
    def rogue_ids(self) -> int:
        """The rogue's quota in each time to remember: of an id a second that he brings nearly all are refused."""
        return max(1, self.remember_s // 60)

    @property
    def sample_s(self) -> float:
        return max(1.0, min(15.0, self.duration_s / LEAST_SAMPLES))

    @property
    def life_s(self) -> float:
        """Time after which a client is started anew."""
        return max(15.0, min(300.0, self.duration_s / 24))

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "folder": self.folder.name,
            "remember_s": self.remember_s,
            "life_s": self.life_s,
        }
