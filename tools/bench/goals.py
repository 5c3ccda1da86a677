"""Goals of a scenario, and whether it reached them: a quantity by itself or against another target's.

Knows numbers and Markdown; measures nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tools.bench.quantities import Measured, Quantity
from tools.bench.statistics import Spread, differences, ratios

Results = Mapping[str, Sequence[Measured]]

ENOUGH_RUNS: Final = 5
"""Fewer decide nothing: their median is any one of them."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`target`'s quantity, or its ratio to or difference from that of `than` in the same run, is `bound` `limit`.

    With `over` each of the two is what it has more than that target. The median of the runs counts; `exactly` holds
    for every run.
    """

    of: str
    quantity: Quantity
    bound: Literal["at most", "at least", "below", "exactly"]
    limit: float
    unit: str = ""
    target: str = "pidgate"
    than: str | None = None
    by: Literal["ratio", "difference"] = "ratio"
    over: str | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The targets without which it cannot be judged."""
        return tuple(target for target in (self.target, self.than, self.over) if target)


def measured_values(goal: Goal, results: Results) -> list[float] | None:
    """Return what is held against the limit, run by run; None when a target of it was not measured."""
    if not all(results.get(target) for target in goal.needs):
        return None
    values, *others = ([goal.quantity(run) for run in results[target]] for target in goal.needs)
    if goal.over is not None:
        *others, least = others
        values, others = differences(values, least), [differences(other, least) for other in others]
    if goal.than is None:
        return values
    return (ratios if goal.by == "ratio" else differences)(values, others[0])


def is_met(goal: Goal, values: Sequence[float]) -> bool:
    """Return whether the runs' values keep to the limit; at least one value."""
    spread = Spread.of(values)
    match goal.bound:
        case "at most":
            return spread.median <= goal.limit
        case "at least":
            return spread.median >= goal.limit
        case "below":
            return spread.median < goal.limit
        case "exactly":
            return spread.least == spread.greatest == goal.limit


def verdicts(goals: Sequence[Goal], results: Results, *, enough_runs: int = ENOUGH_RUNS) -> list[str]:
    """Lines of Markdown: of each goal whether it is met, and the number measured."""
    if not goals:
        return []
    runs = min((len(runs) for runs in results.values()), default=0)
    few = "" if runs >= enough_runs else f" ({runs} run{'' if runs == 1 else 's'}: no verdict yet)"
    return [f"Targets{few}:", "", *(f"- {verdict(goal, results)}" for goal in goals)]


def verdict(goal: Goal, results: Results) -> str:
    """One goal's line. Results may be older than the goal: what they do not hold was not measured."""
    missing = " and ".join(target for target in goal.needs if not results.get(target))
    try:
        values = measured_values(goal, results)
    except KeyError as error:
        values, missing = None, str(error.args[0])
    if values is None:
        return f"not measured (no {missing}): {goal.of} {goal.bound} {_with_unit(goal, f'{goal.limit:g}')}"
    state = "met" if is_met(goal, values) else "not met"
    shown = _with_unit(goal, _shown(Spread.of(values)))
    return f"**{state}**: {goal.of} {shown}; {goal.bound} {goal.limit:g}"


def _with_unit(goal: Goal, number: str) -> str:
    if goal.than and goal.by == "ratio":
        return f"{number} x {goal.than}" + (f"'s over {goal.over}" if goal.over else "")
    parts = [number, goal.unit, f"over {goal.than}" if goal.than else ""]
    return " ".join(part for part in parts if part)


def _shown(spread: Spread) -> str:
    # Four digits that count: 1.154 must not look like the 1.15 that it exceeds.
    if spread.least == spread.greatest:
        return f"{spread.median:.4g}"
    return f"{spread.median:.4g} ({spread.least:.4g} to {spread.greatest:.4g})"
