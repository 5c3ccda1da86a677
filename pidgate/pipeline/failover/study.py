"""A study with the model: broker deaths per quota and scenario, and the rate that prevents them.

The past of all users stays with the engine. Only sums by hour and topic reach this process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from pidgate.pipeline.in_force import CHECK_INTERVAL_MS, Shares, windows
from pidgate.pipeline.kernels import ArrowTables, Kernel
from pidgate.pipeline.schemas import schema_of
from pidgate.quota.settings import ProducerIdSettings

HOUR_MS = 3_600_000
NO_QUOTA = "none"


@dataclass(frozen=True, slots=True)
class Plan:
    """Ids per window of each user; None: no limit."""

    default: float | None = None
    rates: Mapping[str, float | None] = field(default_factory=dict)
    """Of users with a rate of their own."""


Ask = Callable[[Callable[[pa.Table], pa.Table]], pa.Table]
"""Function that applies another one to each part of failover_past, and returns the resulting tables as one."""


@dataclass(frozen=True, slots=True)
class Past:
    """The past, and the settings that are the same for all quotas."""

    ask: Ask
    shares: Shares
    settings: ProducerIdSettings
    expiry_ms: int
    reopening: Collection[str] | None
    """Users whose clients open new producers when a broker dies; None: all of them, the worst case."""
    reopens: float
    """New producers of such a user per active id."""
    last_used_ms: int = 0
    """Last hour in which an id was used; later states only wait to expire."""
    most_wanted: int = 0
    """Most short-lived ids of one user held at the same time; a larger quota has no effect."""

    @property
    def variables(self) -> Mapping[str, float]:
        return {
            "windows": windows(self.settings, self.expiry_ms + CHECK_INTERVAL_MS + 2 * HOUR_MS),
            "false_positive_rate": self.settings.false_positive_rate,
            "reopens": self.reopens,
            "all_reopen": self.reopening is None,
            "last_used_ms": self.last_used_ms,
        }


def ends(ask: Ask) -> tuple[int, int]:
    """Return Past.last_used_ms and most_wanted. Raises HistoryEmpty if nothing was held."""
    found = ask(_ends)
    last_used_ms, most_wanted = (pc.max(found[name]).as_py() for name in found.column_names)
    if last_used_ms is None:
        raise HistoryEmpty("the decision and id_usage events contain no producer id.")
    return last_used_ms, most_wanted


def _ends(past: pa.Table) -> pa.Table:
    used_ms = pc.if_else(pc.greater(past["active_ids"], 0), past["hour_ms"], None)
    both = pa.table({"last_used_ms": used_ms, "most_wanted": past["user_short_ids"]})
    return both.group_by([]).aggregate([(name, "max") for name in both.column_names])


@dataclass(frozen=True, slots=True)
class Options:
    """Parameters given by the operator."""

    heap: Heap
    lost_broker: int | None = None
    """None: the fullest one."""
    reassign: bool = False


def loads_of(past: Past, plans: Mapping[str, Plan]) -> dict[str, Load]:
    """Return the load of each quota, hours x brokers, until the last use."""
    defaults = [{"quota": quota, "default_rate": plan.default} for quota, plan in plans.items()]
    rates = [
        {"quota": quota, "user": user, "rate": rate}
        for quota, plan in plans.items()
        for user, rate in plan.rates.items()
    ]
    tables = {
        "plans": pa.Table.from_pylist(defaults, schema_of("string: quota; double: default_rate")),
        "rates": pa.Table.from_pylist(rates, schema_of("string: quota user; double: rate")),
        "reopening": pa.table({"user": pa.array(past.reopening or (), pa.string())}),
    }
    shares = [
        {"topic": topic, "broker": broker, "share": share}
        for topic, of_topic in past.shares.items()
        for broker, share in of_topic.items()
    ]
    both = {
        "loads": past.ask(partial(_loads, tables, past.variables)),
        "shares": pa.Table.from_pylist(shares),
    }
    with Kernel(both, past.variables) as kernel:
        kernel.run("failover/by_broker")
        rows = kernel.table("by_broker")
    quotas, hours, brokers = (np.unique(rows[name]) for name in ("quota", "hour_ms", "broker"))
    grids = (
        rows[name].to_numpy().reshape(len(quotas), len(hours), len(brokers)) / 1_000
        for name in ("ids", "states", "storm_states", "allowance_states")
    )
    found = {
        quota: Load(quota, hours.tolist(), brokers.tolist(), *of_quota)
        for quota, *of_quota in zip(quotas.tolist(), *grids, strict=True)
    }
    return {quota: found[quota] for quota in plans}


def _loads(tables: ArrowTables, variables: Mapping[str, float], past: pa.Table) -> pa.Table:
    with Kernel({**tables, "failover_past": past}, variables) as kernel:
        kernel.run("failover/loads")
        return kernel.table("loads")


def verdicts(load: Load, options: Options, loss: Scenario) -> list[Verdict]:
    """Return the outcomes of the unchanged past and of the loss."""
    as_it_was = Scenario(reassign=options.reassign, expiry_hours=loss.expiry_hours)
    heap = options.heap
    return [verdict(load, heap, one, run(load, heap, one)) for one in (as_it_was, loss)]


def quota_that_holds(past: Past, options: Options, loss: Scenario) -> int | None:
    """Return the highest rate for all users without a death in either scenario; None if there is none."""

    def holds(rates: Sequence[int]) -> Mapping[int, bool]:
        loads = loads_of(past, {str(rate): Plan(rate) for rate in rates})
        return {rate: all(one.holds for one in verdicts(loads[str(rate)], options, loss)) for rate in rates}

    return greatest_rate(holds, past.most_wanted)


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


def study(past: Past, plans: Mapping[str, Plan], options: Options) -> Answer:
    """Run every plan (one is NO_QUOTA) unchanged and with the loss; solve for the rate without deaths.

    All quotas have the same loss: of the given or fullest broker, in its fullest hour without quotas. Raises
    BadOption if the broker does not exist.
    """
    loads = loads_of(past, plans)
    brokers = loads[NO_QUOTA].brokers
    if options.lost_broker is not None and options.lost_broker not in brokers:
        raise BadOption(f"there is no broker {options.lost_broker} to lose: the topology has {brokers}.")
    expiry_hours = -(-past.expiry_ms // HOUR_MS)
    loss = worst_loss(loads[NO_QUOTA], options.lost_broker, options.reassign, expiry_hours)
    found = {quota: verdicts(load, options, loss) for quota, load in loads.items()}
    rate = None
    if is_needed := not all(one.holds for one in found[NO_QUOTA]):
        rate = quota_that_holds(past, options, loss)
    if rate is not None:
        again = loads_of(past, {solved(rate): Plan(rate)})
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
