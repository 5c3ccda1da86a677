"""Numbers over time as a line."""

from tools.sandbox.demo.sparks import spark


def test_a_rising_value_rises() -> None:
    assert spark([0, 1, 2, 3], [0, 3, 5, 8], cells=4, until=4, top=8) == "▁▄▆█"


def test_between_two_points_the_latest_known_value_stands() -> None:
    assert spark([0, 3.5], [8, 0], cells=4, until=4, top=8) == "███▁"


def test_after_the_last_point_there_is_nothing() -> None:
    assert spark([0, 1], [8, 8], cells=4, until=4, top=8) == "██  "


def test_before_the_first_point_there_is_nothing() -> None:
    assert spark([2.5], [8], cells=4, until=4, top=8) == "  █ "


def test_values_beyond_the_top_fill_the_cell() -> None:
    assert spark([0], [99], cells=1, until=1, top=8) == "█"


def test_no_points_no_line() -> None:
    assert spark([], [], cells=3, until=1, top=8) == "   "


def test_plain_characters_for_terminals_that_have_no_others() -> None:
    assert spark([0, 1], [0, 8], cells=2, until=2, top=8, ascii_only=True) == "_#"
