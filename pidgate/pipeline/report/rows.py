"""Rows of result tables used by the report. Field names are the tables' columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pidgate.findings.patterns import Pattern
from pidgate.pipeline.report.series import Span

Row = Mapping[str, Any]
"""A row of a table with too many columns to name them here: by column name."""


@dataclass(frozen=True, slots=True)
class UserRates:
    """A row of rates_users."""

    user: str
    first_ms: int
    last_ms: int
    ids: int
    new_ids: int
    peak_new_ids_per_minute: int
    peak_new_ids_per_hour: int
    new_ids_per_hour_p50: float | None
    new_ids_per_hour_p95: float | None
    life_ms_p50: float | None
    life_ms_p95: float | None
    requests_per_id: float | None
    partitions_per_id: float | None
    refusals: int
    refused_ids: int
    waited_ms_p50: float | None
    waited_ms_p95: float | None
    gave_up: int
    ids_held: int | None
    states_held: int | None


@dataclass(frozen=True, slots=True)
class ClientRates:
    """A row of rates_clients."""

    user: str
    client_id: str
    ids: int
    new_ids: int
    peak_new_ids_per_hour: int
    requests: int | None
    refusals: int


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
class PatternAccuracy:
    """A row of detector_accuracy."""

    pattern: str
    users: int
    found: int
    true_positives: int
    precision: float | None
    precision_low: float | None
    precision_high: float | None
    recall: float | None
    recall_low: float | None
    recall_high: float | None


@dataclass(frozen=True, slots=True)
class Confused:
    """A row of detector_confusion."""

    actual: str
    predicted: str
    users: int


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
class Epochs:
    """A row of ids_epochs."""

    user: str
    producer_id: int
    first_epoch: int
    last_epoch: int
    bumps: int
    exhausted: bool


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
    most_bumps: Sequence[Epochs]


@dataclass(frozen=True, slots=True)
class KipStep:
    """A row of failover_kip."""

    rule: str
    step: int
    broker: int
    load: float
    dead: bool


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
    rates: UserRates | None = None
    patterns: Sequence[PatternFound] = ()
    recommendation: Row | None = None
    """Of recommendations."""
    clients: Sequence[ClientRates] = ()
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
    advice: Advice | None = None
    accuracy: Sequence[PatternAccuracy] | None = None
    confusion: Sequence[Confused] | None = None
    blocks: Blocks | None = None
    kip: Sequence[KipStep] | None = None
    kafka: Sequence[Heaps] | None = None
