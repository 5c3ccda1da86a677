"""What the report knows: rows of result tables by column name, and sums of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from pidgate.findings.patterns import Pattern
from pidgate.pipeline.ingest.clocks import Doubts
from pidgate.pipeline.report.series import Span

Row = Mapping[str, Any]
"""A row of a result table."""


Typed = TypeVar("Typed")


def typed(kind: type[Typed], row: Row) -> Typed:
    """Return a row as a dataclass whose fields are some of its columns."""
    return kind(**{one.name: row[one.name] for one in fields(kind)})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class PatternFound:
    """A row of offenders."""

    user: str
    pattern: str
    harmful: bool
    new_ids: int
    """New ids of this pattern."""
    share: float
    """Share of the user's new ids."""
    client_id: str | None
    address: str | None
    evidence: Mapping[str, str] | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Series:
    """Counts over time of one name, dense: a value for each step of the span."""

    name: str | None
    """None: the rest, without a line of their own."""
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Totals:
    """rates_users, summed over all users."""

    users: int
    first_ms: int
    last_ms: int
    new_ids: int
    refusals: int
    ids: int | None = None
    refused_ids: int | None = None
    gave_up: int | None = None


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
class Held:
    """held_by_hour: ids with state at brokers, of the largest users and then the rest."""

    span: Span
    by_user: Sequence[Series]
    most_ids: int
    most_states: int
    most_at_ms: int


@dataclass(frozen=True, slots=True)
class Advice:
    """recommendations counted by action, the row of recommend_totals, and the diff."""

    by_action: Mapping[str, int]
    totals: Row
    lower_bounds: int
    """Users whose rate is a lower bound, because refusals kept arrivals away."""
    diff: Sequence[str]
    diff_left_out: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """ids_blocks, ids_by_hour and ids_epochs."""

    blocks: int
    ids_seen: int
    span: Span
    by_broker: Sequence[Series]
    in_blocks: int
    busiest_ms: int
    busiest_blocks: int
    bumped: int
    exhausted: int
    most_bumps: Sequence[Row]
    """Of ids_epochs."""


@dataclass(frozen=True, slots=True)
class Study:
    """A row of failover_summary: one quota in one scenario."""

    quota: str
    scenario: str
    brokers_dead: Sequence[int]
    """Brokers that die of their heap, without the one lost by the scenario."""
    first_death_ms: int | None
    peak_heap_bytes: int
    peak_broker: int
    heap_limit_bytes: int


@dataclass(frozen=True, slots=True)
class Heaps:
    """failover_kafka for one study: each broker's live heap over time, and the deaths."""

    study: Study
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
    patterns: Sequence[PatternFound] = ()
    recommendation: Row | None = None
    """Of recommendations."""
    clients: Sequence[Row] = ()
    """Of rates_clients."""
    candidates: Sequence[Row] = ()
    """Of recommend_candidates."""

    @property
    def worst_first(self) -> Sequence[PatternFound]:
        """Return the patterns, harmful ones first, then by new ids."""
        return sorted(self.patterns, key=lambda one: (not one.harmful, -one.new_ids))

    @property
    def harmful(self) -> Sequence[PatternFound]:
        """Return the harmful patterns, most ids first."""
        return [one for one in self.worst_first if one.harmful]

    @property
    def is_unknown(self) -> bool:
        """Return whether no pattern says anything about it."""
        return all(one.pattern == Pattern.UNKNOWN for one in self.patterns)

    @property
    def burnt_ids(self) -> int:
        """New ids of harmful patterns. Each id belongs to one pattern."""
        return sum(one.new_ids for one in self.harmful)


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
    totals: Totals | None = None
    times: Times | None = None
    held: Held | None = None
    dead_letters: Mapping[str, int] | None = None
    """Events rejected by ingest, by reason."""
    lost: Mapping[str, int] | None = None
    """Missing events, by gateway."""
    clocks: Doubts = field(default_factory=Doubts)
    advice: Advice | None = None
    accuracy: Sequence[Row] | None = None
    confusion: Sequence[Row] | None = None
    blocks: Blocks | None = None
    kip: Sequence[Row] | None = None
    kafka: Sequence[Heaps] | None = None
