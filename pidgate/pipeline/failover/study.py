"""A study with the model: broker deaths per quota and scenario, and the rate that prevents them.

The transforms run on Spark; only sums by hour and broker reach this process.
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
    """The past from this package's transforms. Every question reads `held` and `shares` again."""

    held: DataFrame
    shares: DataFrame
    users: DataFrame
    reopening: DataFrame
    bucket: Bucket
    expiry_ms: int
    last_used_ms: int
    """Last hour in which an id was used; later states only wait to expire."""
    most_wanted: int
    """Most short-lived ids of one user held at the same time; a larger quota has no effect."""

    @classmethod
    def of(
        cls, held: DataFrame, shares: DataFrame, reopening: DataFrame, bucket: Bucket, expiry_ms: int
    ) -> Past:
        """Build it in one pass over `held`. Raises HistoryEmpty if nothing was held."""
        last_used_ms, most_wanted = held.agg(
            f.max(f.when(f.col("active_ids") > 0, f.col("hour_ms"))), f.max("user_short_ids")
        ).collect()[0]
        if last_used_ms is None:
            raise HistoryEmpty("the decision and id_usage events contain no producer id.")
        users = held.select("user").distinct()
        return cls(held, shares, users, reopening, bucket, expiry_ms, last_used_ms, int(most_wanted))


@dataclass(frozen=True, slots=True)
class Options:
    """Parameters given by the operator."""

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
    """Return the outcomes of the unchanged past and of the loss."""
    as_it_was = Scenario(reassign=options.reassign, expiry_hours=loss.expiry_hours)
    heap = options.heap
    return [verdict(load, heap, one, run(load, heap, one)) for one in (as_it_was, loss)]


def loss_to_study(unlimited: Load, options: Options, expiry_ms: int) -> Scenario:
    """Return the loss used for every quota: the given or fullest broker, in its fullest hour without quotas.

    Raises BadOption if the broker does not exist.
    """
    if options.lost_broker is not None and options.lost_broker not in unlimited.brokers:
        raise BadOption(
            f"there is no broker {options.lost_broker} to lose: the topology has {unlimited.brokers}."
        )
    return worst_loss(unlimited, options.lost_broker, options.reassign, -(-expiry_ms // HOUR_MS))


def quota_that_holds(past: Past, options: Options, loss: Scenario) -> int | None:
    """Return the highest rate for all users without a death in either scenario; None if there is none."""

    def holds(rates: Sequence[int]) -> Mapping[int, bool]:
        plans = uniform_plans(past.users, {str(rate): float(rate) for rate in rates})
        loads = loads_of(past, plans)
        return {rate: all_hold(verdicts(loads[str(rate)], options, loss)) for rate in rates}

    return greatest_rate(holds, past.most_wanted)


def all_hold(found: Iterable[Verdict]) -> bool:
    return all(one.holds for one in found)


@dataclass(frozen=True, slots=True)
class Answer:
    """All verdicts, those of the solved quota last."""

    verdicts: Sequence[Verdict]
    is_needed: bool
    """Whether a broker dies without quotas."""
    rate: int | None
    """Highest rate for all users without a death; None if not needed or impossible."""

    def of(self, quota: str) -> list[Verdict]:
        return [one for one in self.verdicts if one.quota == quota]


def solved(rate: int) -> str:
    """Return the name of the solved quota."""
    return f"solved: {rate} each"


def study(past: Past, plans: DataFrame, options: Options) -> Answer:
    """Run every plan (one is NO_QUOTA) unchanged and with the loss; solve for the rate without deaths."""
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
"""Function from rates (ids per window, for all users) to whether every broker survives."""

CANDIDATES = 8
"""Rates tested in one pass over the data."""


def greatest_rate(holds: Holds, most: int, candidates: int = CANDIDATES) -> int | None:
    """Return the highest rate from 1 to `most` that holds, within 1 % below it; None if 1 does not.

    A lower rate never increases a broker's load, so every rate below one that holds also holds. Each pass
    tests a few rates and narrows the gap between the last that holds and the first that does not.
    """
    low, high = 0, most + 1
    while high - low > 1 + low // 100:
        rates = _between(low, high, candidates)
        held = holds(rates)
        low = max((rate for rate in rates if held[rate]), default=low)
        high = min((rate for rate in rates if not held[rate] and rate > low), default=high)
    return low or None


def _between(low: int, high: int, candidates: int) -> list[int]:
    """Return whole rates strictly between the two, in geometric steps."""
    gap = high - low
    if gap - 1 <= candidates:
        return list(range(low + 1, high))
    if low == 0:
        step = high ** (1 / (candidates + 1))
        return sorted({min(max(round(step**n), 1), high - 1) for n in range(candidates + 1)} | {1})
    return sorted({low + round(gap * n / (candidates + 1)) for n in range(1, candidates + 1)})
