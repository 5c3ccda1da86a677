"""The numbers that rules look at. NaN: unknown. A comparison with NaN is false, so its condition does not
hold.

The console and the pipeline fill them; a feature unknown to one of them stays NaN there. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isnan, nan
from typing import Any, Final, TypeVar

F = TypeVar("F", bound="SourceFeatures | AppFeatures | UserFeatures")

SHORT_LIFE_MS: Final = 1_000
"""Life of an id made for one batch: the batch is sent, then the producer is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFeatures:
    """A source: producers of one place (client id at an address), one address, or one client id family.

    Shares and lives refer to `used` ids, those with known requests. Times are milliseconds, shares 0 to 1.
    """

    new_ids: float = nan  # admitted as new within the time
    refused_ids: float = nan  # never admitted
    used: float = nan  # of all these, those with known requests
    one_request: float = nan  # share with one request at most
    two_requests: float = nan
    requests: float = nan  # mean
    short_lived: float = nan  # share in use for less than SHORT_LIFE_MS
    life_ms: float = nan  # geometric mean
    failed: float = nan  # share whose last use ended with an error
    error_code: float = nan
    transactional: float = nan  # share
    names: float = nan  # different transactional ids
    connections: float = nan  # different connections, over the ids
    alive: float = nan  # ids in use at once, on average
    active_ms: float = nan  # from the first start to the last use
    bursts: float = nan  # from here on: see cadence.py
    interval_ms: float = nan
    pause_ms: float = nan
    beat_share: float = nan
    grown: float = nan
    run_ms: float = nan
    processes: float = nan
    overlap_share: float = nan
    ids_per_burst: float = nan
    clock: float = nan
    clock_ms: float = nan
    clock_periods: float = nan
    resets: float = nan  # share of connections cut off, of those closed by clients


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFeatures:
    """The calm producers of one application (family of client ids): those of sources without a matching rule.

    A late producer started after the first part of the time (HEAD_MS), an over one ended before its last
    part.
    """

    ids: float = nan
    new_ids: float = nan
    late_ids: float = nan
    late_long: float = nan  # share of the late ones that are long-lived
    over_life_ms: float = nan  # geometric mean
    long_ids: float = nan
    long_time: float = nan  # share of the long-lived ones in the lives of all
    alive: float = nan
    starts_rhythm: float = nan  # concentration on an hour of the day: 0 none, 1 always the same moment
    ends_rhythm: float = nan
    met_at_address: float = nan  # client ids at the address with most of them
    alive_at_address: float = nan  # producers in use there at once, on average
    met_at_client_id: float = nan  # addresses of the client id with most of them
    alive_at_client_id: float = nan
    sessions: float = nan  # groups of starts after the head
    replacements: float = nan  # sessions that replaced half of the instances
    replaced_ids: float = nan
    instances: float = nan
    growths: float = nan  # sessions that added instances
    alive_most: float = nan
    alive_least: float = nan


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFeatures:
    """A whole user, from answers to InitProducerId, which the pipeline does not read."""

    allocated_ids: float = nan
    unused_ids: float = nan  # allocated and never used to produce
    used_ids: float = nan
    transactional_ids: float = nan
    bumped_ids: float = nan  # seen with an epoch above 0
    partitions: float = nan  # of an id, on average
    states: float = nan  # pairs of id and partition
    new_ids: float = nan
    after_refusal_ids: float = nan  # refused, and replaced by another one in the same breath
    open_connections: float = nan  # opened and not closed within the window
    momentary_ids: float = nan  # of sources that open a producer for a batch or a task


HEAD_MS: Final = 60 * 60_000
"""A producer first seen this soon after the history begins may have run before. Of a short history a
twentieth."""
OPEN_MS: Final = 60 * 60_000
"""An id used this shortly before the end is not over: usage is reported every 15 minutes, of quiet producers
less often. Of a short history a twentieth."""
SESSION_GAP_MS: Final = 30 * 60_000
"""Starts that follow each other within this time are one session: a pod may take minutes to become ready, and
many pods are replaced one by one. Of a short history a twentieth."""
SHORT_SHARE: Final = 0.05
LONG_MS: Final = 6 * 60 * 60_000
"""A producer that lives this long is not a job. Of a short history a quarter."""
LONG_SHARE: Final = 0.25
REPLACED: Final = 0.5
"""In a replacement at least this share of its starts has a matching end, and this share of all instances a
start."""
FEWEST_INSTANCES: Final = 3


@dataclass(frozen=True, slots=True)
class Span:
    """The period covered by the events (wall clock)."""

    first_ms: int
    last_ms: int

    @property
    def length_ms(self) -> int:
        return max(1, self.last_ms - self.first_ms)

    def shortened(self, wanted_ms: int, share: float) -> int:
        """Return a duration meant for weeks of history; for a history of minutes, a share of it."""
        return int(min(wanted_ms, share * self.length_ms))

    @property
    def head_until_ms(self) -> int:
        return self.first_ms + self.shortened(HEAD_MS, SHORT_SHARE)

    @property
    def open_from_ms(self) -> int:
        return self.last_ms - self.shortened(OPEN_MS, SHORT_SHARE)

    @property
    def long_ms(self) -> int:
        return self.shortened(LONG_MS, LONG_SHARE)

    @property
    def session_gap_ms(self) -> int:
        return self.shortened(SESSION_GAP_MS, SHORT_SHARE)


def features_of(kind: type[F], row: Mapping[str, Any]) -> F:
    """Return the features in a row. None and missing values become NaN."""
    known = {one.name: row.get(one.name) for one in fields(kind)}
    return kind(**{name: nan if value is None else value for name, value in known.items()})


def as_row(features: SourceFeatures | AppFeatures | UserFeatures) -> dict[str, float | None]:
    """Return the features by name; NaN becomes None."""
    values = ((one.name, getattr(features, one.name)) for one in fields(features))
    return {name: None if isnan(value) else value for name, value in values}
