"""The needs of each user, and the costs of rates, measured from its history. Pure.

All arrivals of a user are in memory. One takes some 60 bytes, so a rogue of five million ids takes 300 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from pidgate.pipeline.dealing import dealt, numbered
from pidgate.pipeline.kernels import Kernel
from pidgate.pipeline.recommend.chosen import Need
from pidgate.pipeline.recommend.trial import Arrivals, Cost, RateTrial, cost_at, least_rate, rounded_up
from pidgate.pipeline.schemas import schema_of
from pidgate.quota.settings import ProducerIdSettings

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


def measured(
    history: pa.Table, course: Course, current_rate: Callable[[str], float | None]
) -> Iterator[dict[str, Any]]:
    """Yield each user's columns of MEASURES from its rows of INPUT, with `user`, and `tried`: the cost of each rate."""
    times = {"begin_ms": course.begin_ms, "split_ms": course.split_ms, "end_ms": course.end_ms}
    with Kernel(
        {"history": history.select(INPUT.names)}, times | {"window_ms": course.settings.window_ms}
    ) as kernel:
        kernel.run("recommend/measures")
        every, measures = kernel.table("came"), kernel.table("measures").to_pylist()
    names, numbers = numbered(every["user"])
    rows_of = {names[number]: rows for number, rows in dealt(every, numbers, len(names))}
    for row in measures:
        rows = rows_of.get(row["user"], every.slice(0, 0))
        columns = (rows[name].to_numpy() for name in ("at_ms", "is_healthy", "requests", "records"))
        costs = _costs(row, Arrivals(*columns), course, current_rate(row["user"]))
        yield dict.fromkeys(MEASURES.names) | row | costs


def _costs(
    row: Mapping[str, Any], came: Arrivals, course: Course, current_rate: float | None
) -> dict[str, Any]:
    need = _need(came, course, course.end_ms, row["instances"], row["growth"])
    cap, mended = need.rates(course.headroom)
    rates = {cap, mended, *course.given, *([current_rate] if current_rate is not None else [])}
    step = cap / 2
    while step > mended and len(rates) < len(course.given) + 8:
        rates.add(rounded_up(step))
        step /= 2
    costs = {rate: asdict(cost_at(rate, course.settings, came)) for rate in sorted(rates)}
    judging = _need(came, course, course.split_ms, row["instances_before"], row["growth_before"])
    return {
        "least_rate": need.least_rate,
        "least_healthy_rate": need.least_healthy_rate,
        "cap_rate": cap,
        "mended_rate": mended,
        "now": None if current_rate is None else costs[current_rate],
        "cap": costs[cap],
        "mended": costs[mended],
        "tried": [{"candidate_rate": rate, **cost} for rate, cost in costs.items()],
        **_judged(came, course, judging),
    }


def _need(came: Arrivals, course: Course, until_ms: int, instances: int, growth: float) -> Need:
    """Return the need of the days before a time."""
    before = came.times < until_ms
    least, healthy = (least_rate(course.settings, came.only(of)) for of in (before, before & came.healthy))
    return Need(least, healthy, instances, growth)


def _judged(came: Arrivals, course: Course, need: Need) -> Mapping[str, Any]:
    """Return the rates that the days before the split need, and the healthy ids that they refuse after it.

    Empty where no id came before the split, or none after it.
    """
    split = came.before(course.split_ms)
    if split in (0, len(came)):
        return {}
    cap, mended = need.rates(course.headroom)

    def refused(rate: float, of: Arrivals) -> Cost:
        trial, split = RateTrial(rate, course.settings, of), of.before(course.split_ms)
        trial.replay(0, split)
        return trial.replay(split)

    of_cap = refused(cap, came)
    return {
        "judged_cap_rate": cap,
        "judged_mended_rate": mended,
        "judged_ids": len(came) - split,
        "judged_healthy_ids": int(came.healthy[split:].sum()),
        "judged_cap_refused": of_cap.refused_ids,
        "judged_cap_refused_healthy": of_cap.refused_healthy_ids,
        "judged_mended_refused": refused(mended, came.only(came.healthy)).refused_healthy_ids,
    }
