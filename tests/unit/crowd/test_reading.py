"""The check of a crowd's log: what is lost, doubled, reordered or made up is named; a record in flight is no fault."""

from __future__ import annotations

import pytest

from pidgate.load.journal import record_value
from tests.crowd.reading import Found, check
from tools.sandbox.log_checker import LogRecord


def found_in(*written: tuple[str, int], acknowledged: int = 3) -> Found:
    """Of one producer, `a`, and of a rogue, `r`."""
    log = [LogRecord(0, offset, record_value(name, 0, n)) for offset, (name, n) in enumerate(written)]
    return check({"a": acknowledged}, {"r"}, log)


def test_each_acknowledged_record_once_and_in_order_is_no_fault() -> None:
    found = found_in(("a", 0), ("r", 1), ("a", 1), ("r", 2), ("a", 2))
    assert (found.problems, found.in_flight, found.others) == ([], 0, {"r": 2})


def test_the_record_in_flight_at_the_end_may_be_there() -> None:
    found = found_in(("a", 0), ("a", 1), ("a", 2), ("a", 3))
    assert (found.problems, found.in_flight) == ([], 1)


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ((("a", 0), ("a", 1)), "1 lost"),
        ((), "1 lost"),
        ((("a", 0), ("a", 2)), "1 reordered"),
        ((("a", 0), ("a", 1), ("a", 1), ("a", 2)), "1 doubled"),
        ((("a", 1), ("a", 0), ("a", 2)), "1 doubled"),
        ((("a", 0), ("a", 1), ("a", 2), ("a", 3), ("a", 4)), "1 never sent"),
        ((("a", 0), ("a", 1), ("a", 2), ("b", 0)), "1 never sent"),
    ],
)
def test_a_fault_is_named(written: tuple[tuple[str, int], ...], fault: str) -> None:
    problems = found_in(*written).problems
    assert any(problem.startswith(fault) for problem in problems), problems


def test_a_value_that_nobody_wrote_is_one() -> None:
    assert check({}, (), [LogRecord(0, 0, b"?")]).problems[0].startswith("1 never sent")
