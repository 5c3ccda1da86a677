"""What the report knows: rows of result tables by column name, sums of them, and counts over time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pidgate.findings.patterns import Pattern
from pidgate.pipeline.ingest.clocks import Doubts

Row = Mapping[str, Any]
"""A row of a result table, or sums of a table."""
_RESULTS = {
    "rates": ("rates_users", "rates_clients", "rates_by_time", "held_by_hour"),
    "offenders": ("offenders", "detector_accuracy", "detector_confusion"),
    "recommend": ("recommendations", "recommend_candidates", "recommend_totals"),
    "ids": ("ids_blocks", "ids_by_hour", "ids_epochs"),
    "failover": ("failover_kip", "failover_kafka", "failover_summary"),
}
JOB_OF = {name: job for job, names in _RESULTS.items() for name in names}
"""Result tables of the report -> the job that writes each."""

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
_MOST_STEPS = 1_500
_BY_MINUTE_UP_TO_MS = 6 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Span:
    """`steps` of step_ms each from start_ms."""

    start_ms: int
    step_ms: int
    steps: int

    def dense(self, counts: Mapping[int, float]) -> list[float]:
        """Return a value per step by its start time; 0 if missing."""
        return [counts.get(self.start_ms + n * self.step_ms, 0) for n in range(self.steps)]

    @property
    def unit(self) -> str:
        """Name of a step in rates_by_time."""
        return {MINUTE_MS: "minute", HOUR_MS: "hour"}.get(self.step_ms, "day")

    @property
    def step_words(self) -> str:
        """Return the step as text: minute, hour, day, 3 days."""
        days = self.step_ms // DAY_MS
        return f"{days} days" if days > 1 else self.unit


def span_between(first_ms: int, last_ms: int, *, finest_ms: int = MINUTE_MS) -> Span:
    """Return steps in UTC: minutes for some hours, hours for two months, otherwise one or more days."""
    long_ms = last_ms - first_ms
    if finest_ms <= MINUTE_MS and long_ms <= _BY_MINUTE_UP_TO_MS:
        step_ms = MINUTE_MS
    elif long_ms <= _MOST_STEPS * HOUR_MS:
        step_ms = HOUR_MS
    else:
        step_ms = DAY_MS * -(-long_ms // (_MOST_STEPS * DAY_MS))
    start_ms = first_ms - first_ms % step_ms
    return Span(start_ms, step_ms, (last_ms - start_ms) // step_ms + 1)


@dataclass(frozen=True, slots=True)
class Series:
    """Counts over time of one name, dense: a value for each step of the span."""

    name: str | None
    """None: the rest, without a line of their own."""
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Times:
    """rates_by_time: total new ids and refusals, and hourly new ids of the users with a page."""

    span: Span
    by_user: Sequence[Series]
    """The users with the most new ids, then the rest."""
    refusals: Series
    within_window: Mapping[str | None, Series]
    is_running: bool
    """Whether values are sums over a whole window, or else counts of a step or of its busiest hour."""


@dataclass(frozen=True, slots=True)
class Heaps:
    """failover_kafka for one study: each broker's live heap over time, and the deaths."""

    study: Row
    """Of failover_summary. brokers_dead: those that die of their heap, without the one lost by the scenario."""
    span: Span
    by_broker: Sequence[Series]
    died: Mapping[int, int]
    """Broker to the hour, in ms."""


@dataclass(frozen=True, slots=True)
class UserRow:
    """All data of one user. Users without a page have only the table's columns."""

    user: str
    rates: Row | None = None
    """Of rates_users."""
    patterns: Sequence[Row] = ()
    """Of offenders."""
    recommendation: Row | None = None
    """Of recommendations."""
    clients: Sequence[Row] = ()
    """Of rates_clients."""
    candidates: Sequence[Row] = ()
    """Of recommend_candidates."""

    @property
    def worst_first(self) -> Sequence[Row]:
        """Return the patterns, harmful ones first, then by new ids."""
        return sorted(self.patterns, key=lambda one: (not one["harmful"], -one["new_ids"]))

    @property
    def harmful(self) -> Sequence[Row]:
        """Return the harmful patterns, most ids first."""
        return [one for one in self.worst_first if one["harmful"]]

    @property
    def is_unknown(self) -> bool:
        """Return whether no pattern says anything about it."""
        return all(one["pattern"] == Pattern.UNKNOWN for one in self.patterns)

    @property
    def burnt_ids(self) -> int:
        """New ids of harmful patterns. Each id belongs to one pattern."""
        return sum(one["new_ids"] for one in self.harmful)


@dataclass(frozen=True, slots=True)
class Found:
    """Everything in the report. None: the job was not run."""

    tables: str
    made_ms: int
    window_ms: int
    days: str = ""
    """The days of charts and sums in words; empty: all of them."""
    users: Sequence[UserRow] = ()
    """Worst first: those with a page, then those in the table only."""
    pages: int = 0
    users_left_out: int = 0
    has: frozenset[str] = field(default_factory=frozenset)
    """Existing result tables."""
    totals: Row | None = None
    """rates_users, summed over all users."""
    times: Times | None = None
    held: Row | None = None
    """held_by_hour: `span`, the most ids and states, and `by_user`: ids of the largest users and then the rest."""
    dead_letters: Mapping[str, int] | None = None
    """Events rejected by ingest, by reason."""
    lost: Mapping[str, int] | None = None
    """Missing events, by gateway."""
    clocks: Doubts = field(default_factory=Doubts)
    advice: Row | None = None
    """The row of recommend_totals, recommendations by action, users with a lower bound, and the diff."""
    accuracy: Sequence[Row] | None = None
    confusion: Sequence[Row] | None = None
    blocks: Row | None = None
    """Sums of ids_blocks, ids_by_hour and ids_epochs; `by_broker`: blocks over time."""
    kip: Sequence[Row] | None = None
    kafka: Sequence[Heaps] | None = None
