"""Goals: what is held against the limit, whether it is kept, and how that is told."""

import math

import pytest

from tools.bench.goals import Goal, is_met, measured_values, verdict
from tools.bench.quantities import Measured, cpu_us_per_request, p99_ms


def costs(*us_per_request: float) -> list[Measured]:
    return [{"cpu_s": us / 1e6 * 1000, "requests": 1000} for us in us_per_request]


CPU = Goal(of="CPU per request", quantity=cpu_us_per_request, bound="at most", limit=1.15, than="bare")
P99 = Goal(of="p99", quantity=p99_ms, bound="at most", limit=1, unit="ms", than="direct", by="difference")


def test_a_ratio_is_taken_within_each_run() -> None:
    # Between runs the machine became twice as slow, for both alike.
    results = {"bare": costs(40, 80, 40), "pidgate": costs(44, 88, 48)}
    assert measured_values(CPU, results) == pytest.approx([1.1, 1.1, 1.2])
    assert verdict(CPU, results) == "**met**: CPU per request 1.1 (1.1 to 1.2) x bare; at most 1.15"


def test_a_difference_is_taken_within_each_run() -> None:
    results = {"direct": [{"p99_ms": 1.0}, {"p99_ms": 5.0}], "pidgate": [{"p99_ms": 2.5}, {"p99_ms": 6.0}]}
    assert measured_values(P99, results) == [1.5, 1.0]
    assert verdict(P99, results) == "**not met**: p99 1.25 (1 to 1.5) ms over direct; at most 1"


def test_what_a_target_adds_is_compared_with_what_another_adds() -> None:
    goal = Goal(of="p99", quantity=p99_ms, bound="at most", limit=1.1, than="haproxy", over="direct")
    latencies = {"direct": [1.0, 3.0, 1.0], "haproxy": [3.0, 5.0, 1.0], "pidgate": [2.0, 6.0, 5.0]}
    results = {target: [{"p99_ms": value} for value in values] for target, values in latencies.items()}
    assert measured_values(goal, results) == [0.5, 1.5, math.inf]
    assert verdict(goal, results) == "**not met**: p99 1.5 (0.5 to inf) x haproxy's over direct; at most 1.1"
    assert verdict(goal, {**results, "direct": []}).startswith("not measured (no direct)")


@pytest.mark.parametrize(
    ("bound", "values", "expected"),
    [
        ("at most", [2.0], True),
        ("at most", [1.0, 2.1, 3.0], False),
        ("at least", [2.0], True),
        ("at least", [1.9], False),
        ("below", [1.9], True),
        ("below", [2.0], False),
        ("exactly", [2.0, 2.0, 2.0], True),
        ("exactly", [2.0, 2.0, 3.0], False),
        ("exactly", [3.0, 3.0], False),
    ],
)
def test_the_median_counts_but_exactly_means_every_run(
    bound: str, values: list[float], expected: bool
) -> None:
    goal = Goal(of="x", quantity=p99_ms, bound=bound, limit=2)  # type: ignore[arg-type]
    assert is_met(goal, values) is expected


@pytest.mark.parametrize("results", [{"pidgate": costs(44)}, {"pidgate": costs(44), "bare": []}])
def test_without_the_other_target_nothing_is_said_to_be_met(results: dict[str, list[Measured]]) -> None:
    assert measured_values(CPU, results) is None
    assert verdict(CPU, results) == "not measured (no bare): CPU per request at most 1.15 x bare"
