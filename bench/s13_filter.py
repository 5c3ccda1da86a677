"""The filter that remembers producer ids: ten million of them over two windows, and what asking for one costs.

1,000 users x 10,000 ids, each id used in both windows, so that it stands in both layers. Needs neither a broker nor
several runs; the time of a check is processor time. `pidgate` is the compiled one, `plain` the other.
"""

from bench.alone import Alone, Column, Conditions, Plan, Results, measured_as
from bench.compiled import compiled
from bench.goals import Goal
from bench.quantities import Measured
from bench.s05_memory import run
from bench.targets import PLAIN, ROOT


def _measure(plan: Plan, conditions: Conditions) -> Results:
    results = {}
    for target, packages in (("pidgate", compiled()), (PLAIN, ROOT)):
        measured = run("two_windows", plan, packages)
        conditions.say(
            f"13 {target}: {_grown_mb(measured):.1f} MB, check {measured['check_known_us']:.2f} us"
        )
        results[target] = [measured]
    return results


def _grown_mb(measured: Measured) -> float:
    return measured["grown_bytes"] / 1e6


def _check_us(measured: Measured) -> float:
    """Of the kind of id that takes longer."""
    return max(measured["check_known_us"], measured["check_unknown_us"])


SCENARIO = Alone(
    number="13",
    name="filter",
    title="10 million live ids over two windows",
    kafka="none",
    plan={"users": 1_000, "live_ids": 10_000},
    quick={"users": 50},
    measure=_measure,
    columns=(
        Column("RSS grown MB", _grown_mb, 1),
        Column("of it filters MB", lambda measured: measured["filter_bytes"] / 1e6, 1),
        Column("check of a known id us", measured_as("check_known_us"), 2),
        Column("of an unknown one us", measured_as("check_unknown_us"), 2),
        Column("unknown ones found", measured_as("found_unknown"), 5),
    ),
    goals=(
        Goal(of="memory", quantity=_grown_mb, bound="at most", limit=150, unit="MB"),
        Goal(of="a check", quantity=_check_us, bound="at most", limit=3, unit="us"),
        Goal(of="known ids found", quantity=measured_as("found_known"), bound="exactly", limit=1),
    ),
    enough_runs=1,
)
