"""One study put to the model: under which quotas, with which broker lost, who dies, and what rate would keep all alive.

The transforms run on Spark; of their outcome only the sums by hour and broker come to this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.errors import BadOption, HistoryEmpty
from pidgate.pipeline.failover.cascade import (
    Heap,
    Load,
    Scenario,
    Verdict,
    run,
    verdict,
    worst_loss,
)
from pidgate.pipeline.failover.held import HOUR_MS
from pidgate.pipeline.failover.loads import by_broker, under_quotas, uniform_plans
from pidgate.pipeline.failover.placement import Bucket

NO_QUOTA = "none"


@dataclass(frozen=True, slots=True)
class Past:
    """The past, made by the transforms of this package. Every question reads `held` and `shares` again."""

    held: DataFrame
    shares: DataFrame
    users: DataFrame
    reopening: DataFrame
    bucket: Bucket
    expiry_ms: int
    last_used_ms: int
    """The last hour in which an id was used; what is held after it is only waiting to expire."""
    most_wanted: int
    """The most short-lived ids of one user that are held at once: no greater quota changes anything."""

    @classmethod
    def of(
        cls, held: DataFrame, shares: DataFrame, reopening: DataFrame, bucket: Bucket, expiry_ms: int
    ) -> Past:
        """Build it with one pass over `held`. Raises HistoryEmpty when nothing was held."""
        last_used_ms, most_wanted = held.agg(
            f.max(f.when(f.col("active_ids") > 0, f.col("hour_ms"))), f.max("user_short_ids")
        ).collect()[0]
        if last_used_ms is None:
            raise HistoryEmpty(
                "the decision and id_usage events name no producer id: there is nothing to hold."
            )
        users = held.select("user").distinct()
        return cls(held, shares, users, reopening, bucket, expiry_ms, last_used_ms, int(most_wanted))


@dataclass(frozen=True, slots=True)
class Options:
    """Parameters that an operator gives."""

    heap: Heap
    lost_broker: int | None = None
    """None: the fullest one."""
    reassign: bool = False


def loads_of(past: Past, plans: DataFrame) -> dict[str, Load]:
    """Return the load of each quota, hours x brokers, until the last use."""
    used = past.held.where(f.col("hour_ms") <= past.last_used_ms)
    loads = under_quotas(used, plans, past.reopening, past.bucket, past.expiry_ms)
    rows = by_broker(loads, past.shares).collect()
    hours = range(min(row.hour_ms for row in rows), past.last_used_ms + 1, HOUR_MS)
    brokers = sorted({row.broker for row in rows})
    found: dict[str, Load] = {}
    for row in rows:
        if row.quota not in found:
            empty = [np.zeros((len(hours), len(brokers))) for _ in range(4)]
            found[row.quota] = Load(row.quota, hours, brokers, *empty)
        load, at = found[row.quota], (hours.index(row.hour_ms), brokers.index(row.broker))
        load.ids[at], load.states[at] = row.ids, row.states
        load.storm_states[at], load.allowance_states[at] = row.storm_states, row.allowance_states
    return found


def verdicts(load: Load, options: Options, loss: Scenario) -> list[Verdict]:
    """Return the outcome as it was, and with a broker lost."""
    as_it_was = Scenario(reassign=options.reassign, expiry_hours=loss.expiry_hours)
    heap = options.heap
    return [verdict(load, heap, one, run(load, heap, one)) for one in (as_it_was, loss)]


def loss_to_study(unlimited: Load, options: Options, expiry_ms: int) -> Scenario:
    """The same loss for every quota: the given broker, or the fullest, in its fullest hour without quotas.

    Raises BadOption when there is no such broker.
    """
    if options.lost_broker is not None and options.lost_broker not in unlimited.brokers:
        raise BadOption(
            f"there is no broker {options.lost_broker} to lose: the topology has {unlimited.brokers}."
        )
    return worst_loss(unlimited, options.lost_broker, options.reassign, -(-expiry_ms // HOUR_MS))


def quota_that_holds(past: Past, options: Options, loss: Scenario) -> int | None:
    """The greatest rate for every user with which nobody dies in either scenario; None: none does."""

    def holds(rates: Sequence[int]) -> Mapping[int, bool]:
        plans = uniform_plans(past.users, {str(rate): float(rate) for rate in rates})
        loads = loads_of(past, plans)
        return {rate: all_hold(verdicts(loads[str(rate)], options, loss)) for rate in rates}

    return greatest_rate(holds, past.most_wanted)


def all_hold(found: Iterable[Verdict]) -> bool:
    return all(one.holds for one in found)


@dataclass(frozen=True, slots=True)
class Answer:
    """All verdicts, those of the quota that was solved for last."""

    verdicts: Sequence[Verdict]
    is_needed: bool
    """Return whether a broker dies without quotas."""
    rate: int | None
    """The greatest rate for every user with which nobody dies; None: not needed, or none does."""

    def of(self, quota: str) -> list[Verdict]:
        return [one for one in self.verdicts if one.quota == quota]


def solved(rate: int) -> str:
    """Return the name of the quota that was solved for."""
    return f"solved: {rate} each"


def study(past: Past, plans: DataFrame, options: Options) -> Answer:
    """Every plan (one of them NO_QUOTA) as it was and with a broker lost; and the rate that keeps all alive."""
    loads = loads_of(past, plans)
    loss = loss_to_study(loads[NO_QUOTA], options, past.expiry_ms)
    found = {quota: verdicts(load, options, loss) for quota, load in loads.items()}
    rate = None
    if is_needed := not all_hold(found[NO_QUOTA]):
        rate = quota_that_holds(past, options, loss)
    if rate is not None:
        again = loads_of(past, uniform_plans(past.users, {solved(rate): float(rate)}))
        found |= {quota: verdicts(load, options, loss) for quota, load in again.items()}
    return Answer([one for both in found.values() for one in both], is_needed, rate)


Holds = Callable[[Sequence[int]], Mapping[int, bool]]
"""Function: does every broker live under each of these rates (ids per window, for every user)?"""

CANDIDATES = 8
"""Rates that are looked at in one pass over the data."""


def greatest_rate(holds: Holds, most: int, candidates: int = CANDIDATES) -> int | None:
    """The greatest rate from 1 to `most` that holds, to within 1 % below it; None: not even 1 does.

    A lower rate never lays more on a broker, so whatever is below a rate that holds does, too. Each pass runs the
    model for a few rates and leaves the gap between the last that holds and the first that does not.
    """
    low, high = 0, most + 1
    while high - low > 1 + low // 100:
        rates = _between(low, high, candidates)
        held = holds(rates)
        low = max((rate for rate in rates if held[rate]), default=low)
        high = min((rate for rate in rates if not held[rate] and rate > low), default=high)
    return low or None


def _between(low: int, high: int, candidates: int) -> list[int]:
    """Whole rates strictly between the two: by factors, as quotas are thought of, closing in evenly."""
    gap = high - low
    if gap - 1 <= candidates:
        return list(range(low + 1, high))
    if low == 0:
        step = high ** (1 / (candidates + 1))
        return sorted({min(max(round(step**n), 1), high - 1) for n in range(candidates + 1)} | {1})
    return sorted({low + round(gap * n / (candidates + 1)) for n in range(1, candidates + 1)})
