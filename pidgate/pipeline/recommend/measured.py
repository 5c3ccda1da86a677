"""What one user's history says: its needs, and the cost of rates. One call a user, all of its arrivals in memory. Pure.

An arrival takes some 60 bytes, so a rogue of five million ids takes 300 MB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pidgate.pipeline.recommend.chosen import A_DAY_MS, MOST_GROWTH, Need
from pidgate.pipeline.recommend.trial import (
    Arrivals,
    Cost,
    Flags,
    Longs,
    RateTrial,
    cost_at,
    least_rate,
    rounded_up,
)
from pidgate.pipeline.schemas import schema_of
from pidgate.quota.settings import ProducerIdSettings

A_WEEK: Final = 7
FEWEST_A_DAY: Final = 5
"""Healthy ids of a usual day below which growth is not told."""
FEWEST_AT_A_PEAK: Final = 20
LONG_LIVED_MS: Final = 3_600_000
"""Life of a producer that is an instance, rather than a part of its work."""

INPUT = schema_of(
    "string: user; int64: at_ms; bool: healthy transactional; "
    "int64: refusals address requests records partitions first_ms last_ms"
)
"""Null: at_ms of an id that is older than the history; partitions that are not known; first_ms and last_ms where an
earlier arrival of the id has them. `address` is a hash."""
COST = schema_of("int64: refused_ids refused_healthy_ids refused_requests refused_records longest_wait_ms")
MEASURES = pa.schema(
    [
        *schema_of(
            "int64: ids rogue_ids rogue_transactional_ids healthy_refusals requests records rogue_last_ms "
            "ids_last_week ids_week_before peak_weekday peak_weeks; double: partitions_per_id; int64: instances; "
            "double: growth least_rate least_healthy_rate cap_rate mended_rate judged_cap_rate judged_mended_rate; "
            "int64: judged_ids judged_healthy_ids judged_cap_refused judged_cap_refused_healthy judged_mended_refused"
        ),
        *((name, pa.struct(COST)) for name in ("now", "cap", "mended")),
    ]
)


@dataclass(frozen=True, slots=True)
class Course:
    """The days of a history, and what is the same for all users. Times are wall clock ms."""

    settings: ProducerIdSettings
    begin_ms: int
    split_ms: int
    """Start of the days kept back, which judge the rates that were chosen without them."""
    end_ms: int
    headroom: float = 1.5
    given: tuple[float, ...] = ()
    """More rates to try."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One user's rows, in order of time."""

    at_ms: Longs
    healthy: Flags
    transactional: Flags
    refusals: Longs
    address: Longs
    requests: Longs
    records: Longs
    begun_ms: Longs
    """Of producers that are not a rogue's and lived for long: their first and last use."""
    ended_ms: Longs
    partitions_per_id: float

    @classmethod
    def of(cls, table: pa.Table) -> Seen:
        """Read rows of INPUT."""
        columns = {name: table.column(name).combine_chunks() for name in INPUT.names if name != "user"}
        lived = columns["first_ms"].is_valid().to_numpy(zero_copy_only=False)
        first, last = (_longs(columns[name])[lived] for name in ("first_ms", "last_ms"))
        is_long = _flags(columns["healthy"])[lived] & (last - first > LONG_LIVED_MS)
        partitions = columns["partitions"].drop_null()
        mean = float(partitions.to_numpy().mean()) if len(partitions) else 1.0
        came = columns["at_ms"].is_valid().to_numpy(zero_copy_only=False)
        at_ms = _longs(columns["at_ms"])[came]
        # Ties are broken by what else is known, so that shuffled rows give the same.
        keys = [_longs(columns[name])[came] for name in ("records", "requests", "address")]
        order = np.lexsort([*keys, _flags(columns["healthy"])[came], at_ms])
        numbers = {
            name: _longs(columns[name])[came][order]
            for name in ("refusals", "address", "requests", "records")
        }
        flags = {name: _flags(columns[name])[came][order] for name in ("healthy", "transactional")}
        return cls(
            at_ms=at_ms[order],
            begun_ms=np.sort(first[is_long]),
            ended_ms=np.sort(last[is_long]),
            partitions_per_id=mean,
            **numbers,
            **flags,
        )

    def arrivals(self, where: Flags) -> Arrivals:
        return Arrivals(self.at_ms[where], self.healthy[where], self.requests[where], self.records[where])

    def need(self, course: Course, until_ms: int) -> Need:
        """Return the need of the days before a time."""
        before = self.at_ms < until_ms
        return Need(
            least_rate(course.settings, self.arrivals(before)),
            least_rate(course.settings, self.arrivals(before & self.healthy)),
            max(self._alive(until_ms), self._addresses(before & ~self.healthy, course.settings.window_ms)),
            self._growth(course.begin_ms, until_ms),
        )

    def _alive(self, until_ms: int) -> int:
        """Return the most long-lived producers in use at the same time."""
        begun = self.begun_ms[self.begun_ms < until_ms]
        alive = np.arange(1, len(begun) + 1) - np.searchsorted(self.ended_ms, begun)
        return int(alive.max(initial=0))

    def _addresses(self, rogue: Flags, window_ms: int) -> int:
        """Return the most addresses of a rogue in one window: its instances, as far as they can be told."""
        if not rogue.any():
            return 0
        _, address = np.unique(self.address[rogue], return_inverse=True)
        window = self.at_ms[rogue] // window_ms - self.at_ms[0] // window_ms
        pairs = np.unique(window * (address.max() + 1) + address)
        return int(np.unique(pairs // (address.max() + 1), return_counts=True)[1].max())

    def _growth(self, begin_ms: int, until_ms: int) -> float:
        """Return the ratio of a usual day's healthy ids to the week before, from 1 to MOST_GROWTH.

        The median of days, so that one deployment is no growth.
        """
        if until_ms - begin_ms < 2 * A_WEEK * A_DAY_MS:
            return 1.0
        counts = self.by_day(until_ms - 2 * A_WEEK * A_DAY_MS, 2 * A_WEEK)
        before, last = (float(np.median(week)) for week in (counts[:A_WEEK], counts[A_WEEK:]))
        return min(MOST_GROWTH, max(1.0, last / before)) if before >= FEWEST_A_DAY else 1.0

    def by_day(self, begin_ms: int, days: int) -> Longs:
        """Return the healthy ids of each day from a time on."""
        day = (self.at_ms[self.healthy] - begin_ms) // A_DAY_MS
        return np.bincount(day[(day >= 0) & (day < days)], minlength=days)

    def weekly_peak(self, course: Course) -> tuple[int | None, int]:
        """Return the weekday (0 is Monday) with far more healthy ids than a usual day, and its weeks.

        None unless another week has a day like the fullest at the same place.
        """
        first = course.begin_ms // A_DAY_MS
        counts = self.by_day(first * A_DAY_MS, int((course.end_ms - 1) // A_DAY_MS - first + 1))
        fullest = int(counts.argmax()) if len(counts) else 0
        alike = counts[fullest % A_WEEK :: A_WEEK] * 2 >= counts[fullest] if len(counts) else np.zeros(1)
        others = np.delete(counts, np.arange(fullest % A_WEEK, len(counts), A_WEEK))
        usual = float(np.median(others)) if len(others) else 0.0
        if alike.sum() < 2 or counts[fullest] < max(FEWEST_AT_A_PEAK, 3 * usual):
            return None, 0
        # Day 0 of the epoch was a Thursday.
        return int((first + fullest + 3) % A_WEEK), int(alike.sum())

    def between(self, begin_ms: int, end_ms: int) -> int:
        return int(((self.at_ms >= begin_ms) & (self.at_ms < end_ms)).sum())


def _longs(column: pa.Array) -> Longs:
    values: Longs = column.fill_null(0).to_numpy(zero_copy_only=False)
    return values


def _flags(column: pa.Array) -> Flags:
    values: Flags = column.fill_null(True).to_numpy(zero_copy_only=False)
    return values


def row_of(seen: Seen, course: Course, current_rate: float | None) -> Mapping[str, Any]:
    """Return the columns of MEASURES, and `tried`: the cost of each rate."""
    everything = np.ones(len(seen.at_ms), dtype=bool)
    came, settings = seen.arrivals(everything), course.settings
    rogue = ~seen.healthy
    need = seen.need(course, course.end_ms)
    cap, mended = need.rates(course.headroom)
    rates = {cap, mended, *course.given, *([current_rate] if current_rate is not None else [])}
    step = cap / 2
    while step > mended and len(rates) < len(course.given) + 8:
        rates.add(rounded_up(step))
        step /= 2
    costs = {rate: asdict(cost_at(rate, settings, came)) for rate in sorted(rates)}
    requests, records = came.traffic(0, len(came))
    week_ms = A_WEEK * A_DAY_MS
    weekday, weeks = seen.weekly_peak(course)
    return {
        "ids": len(came),
        "rogue_ids": int(rogue.sum()),
        "rogue_transactional_ids": int((rogue & seen.transactional).sum()),
        "healthy_refusals": int(seen.refusals[seen.healthy].sum()),
        "requests": requests,
        "records": records,
        "rogue_last_ms": int(seen.at_ms[rogue].max()) if rogue.any() else None,
        "ids_last_week": seen.between(course.end_ms - week_ms, course.end_ms),
        "ids_week_before": seen.between(course.end_ms - 2 * week_ms, course.end_ms - week_ms),
        "peak_weekday": weekday,
        "peak_weeks": weeks,
        "partitions_per_id": seen.partitions_per_id,
        "instances": need.instances,
        "growth": need.growth,
        "least_rate": need.least_rate,
        "least_healthy_rate": need.least_healthy_rate,
        "cap_rate": cap,
        "mended_rate": mended,
        "now": None if current_rate is None else costs[current_rate],
        "cap": costs[cap],
        "mended": costs[mended],
        "tried": [{"candidate_rate": rate, **cost} for rate, cost in costs.items()],
        **_judged(seen, course),
    }


def _judged(seen: Seen, course: Course) -> Mapping[str, Any]:
    """Return the rates that the days before the split give, and the healthy ids that they refuse after it."""
    test = seen.at_ms >= course.split_ms
    if test.all() or not test.any():
        return {}
    need = seen.need(course, course.split_ms)
    cap, mended = need.rates(course.headroom)

    def refused(rate: float, where: Flags) -> Cost:
        came = seen.arrivals(where)
        split = came.before(course.split_ms)
        trial = RateTrial(rate, course.settings, came)
        trial.replay(0, split)
        return trial.replay(split)

    of_cap = refused(cap, np.ones(len(seen.at_ms), dtype=bool))
    return {
        "judged_cap_rate": cap,
        "judged_mended_rate": mended,
        "judged_ids": int(test.sum()),
        "judged_healthy_ids": int((test & seen.healthy).sum()),
        "judged_cap_refused": of_cap.refused_ids,
        "judged_cap_refused_healthy": of_cap.refused_healthy_ids,
        "judged_mended_refused": refused(mended, seen.healthy).refused_healthy_ids,
    }
