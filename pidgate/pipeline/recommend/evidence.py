"""All evidence about one user for the choice of its rate, as far as a Spark row holds it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, Self

from pidgate.quota.settings import Mode

HELD_SHARE = 0.5
"""A rogue is held if at most this share of its ids is admitted."""
LONGEST_WAIT_MS = 60_000
"""The gateway's own alarm: a client that waits longer is about to lose records."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of some days under one rate. `longest_wait_ms`: of a healthy id."""

    healthy_refused: int = 0
    rogue_admitted: int = 0
    rogue_refused: int = 0
    longest_wait_ms: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Add the counts of consecutive days; the bucket is continued between them."""
        return Counts(
            self.healthy_refused + other.healthy_refused,
            self.rogue_admitted + other.rogue_admitted,
            self.rogue_refused + other.rogue_refused,
            max(self.longest_wait_ms, other.longest_wait_ms),
        )

    @property
    def rogue_ids(self) -> int:
        return self.rogue_admitted + self.rogue_refused

    @property
    def holds(self) -> bool | None:
        """Return whether most rogue ids are kept out; None without a rogue."""
        return self.rogue_admitted <= HELD_SHARE * self.rogue_ids if self.rogue_ids else None


@dataclass(frozen=True, slots=True)
class Tried:
    """One rate (ids per window) in the days learnt from, and in the judged ones."""

    rate: float
    train: Counts = Counts()
    test: Counts = Counts()

    @property
    def whole(self) -> Counts:
        return self.train + self.test


@dataclass(frozen=True, slots=True)
class Need:
    """Arrivals in some days. `naive`: the maximum in one window; `alive`: the maximum in use in parallel."""

    ids: int = 0
    rogue_ids: int = 0
    rogue_transactional_ids: int = 0
    naive: int = 0
    healthy_peak: int = 0
    alive: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One user. `current_rate`: None is no limit; `tried`: ascending."""

    user: str
    tried: Sequence[Tried] = ()
    train: Need = Need()
    whole: Need = Need()
    first_ms: int = 0
    """Time of its first decision in these days."""
    healthy_refusals: int = 0
    """Refusals of non-rogue ids, and of clients without an id, while enforced."""
    patterns: Sequence[str] = ()
    """The harmful patterns found."""
    rogues: Sequence[str] = ()
    """Their clients, as text."""
    current_rate: float | None = None
    mode: str = "observe"
    exempt: bool = False
    owner: str = ""
    source: str = ""
    set_by: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of candidates(), with `outcomes`: the user's rows of recommend_candidates."""
        plain = {
            one.name: row[one.name] for one in fields(cls) if one.name not in ("tried", "train", "whole")
        }
        train, whole = (
            Need(**{one.name: row[f"{days}_{one.name}"] for one in fields(Need)})
            for days in ("train", "whole")
        )
        return cls(**plain, train=train, whole=whole, tried=_tried(row["outcomes"] or ()))

    @property
    def is_enforced(self) -> bool:
        """Return whether its rate refuses anything today."""
        return self.mode == Mode.ENFORCE and not self.exempt

    def at(self, rate: float | None) -> Tried | None:
        """Return the outcome of a tried rate, or None."""
        return next((one for one in self.tried if one.rate == rate), None)

    @property
    def now(self) -> Tried:
        """Return the outcome in force: a rate, a block (0), or (infinite) no limit, as for exempt users."""
        found = None if self.exempt else self.at(self.current_rate)
        if found is not None:
            return found
        is_blocked = self.current_rate == 0 and not self.exempt
        late = Need(self.whole.ids - self.train.ids, self.whole.rogue_ids - self.train.rogue_ids)
        days = (
            Counts(healthy_refused=need.ids - need.rogue_ids, rogue_refused=need.rogue_ids)
            if is_blocked
            else Counts(rogue_admitted=need.rogue_ids)
            for need in (self.train, late)
        )
        return Tried(0.0 if is_blocked else inf, *days)


def _tried(outcomes: Sequence[Mapping[str, Any]]) -> list[Tried]:
    names = [one.name for one in fields(Counts)]
    by_rate: dict[float, dict[str, Counts]] = {}
    for one in outcomes:
        counts = Counts(**{name: one[name] for name in names})
        by_rate.setdefault(one["candidate_rate"], {})[one["period"]] = counts
    return [Tried(rate, **by_rate[rate]) for rate in sorted(by_rate)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Parameters given by the operator, and the available days."""

    headroom: float = 1.5
    longest_wait_ms: int = 0
    """Longest wait of healthy ids if a rogue cannot be held otherwise; 0: no healthy id may wait."""
    least_history_ms: int = 7 * 86_400_000
    least_ids: int = 20
    begin_ms: int = 0
    end_ms: int = field(default=1 << 62)
