"""Tables at any width: whole words, or a line for each cell."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pidgate.console import print_table

COLUMNS = ("user", "setting", "set by", "note")
CELL = st.text("ab- .\u00e4\u4e2d", max_size=30)


def printed(rows: list[tuple[str, ...]], width: int) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, highlight=False, emoji=False)
    print_table(console, COLUMNS, rows)
    return out.getvalue()


def test_a_table_that_is_too_wide_becomes_lines() -> None:
    row = ("alice", "producer_ids_rate", "cli:root at 2026-11-21 14:02", "the night of the failure")

    assert "cli:root at 2026-11-21 14:02" in printed([row], 100)
    assert [line.rstrip() for line in printed([row], 60).splitlines()] == [
        "user     alice",
        "setting  producer_ids_rate",
        "set by   cli:root at 2026-11-21 14:02",
        "note     the night of the failure",
        "",
    ]


@given(st.lists(st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=4), st.integers(45, 140))
def test_no_word_is_cut_or_broken(rows: list[tuple[str, ...]], width: int) -> None:
    shown = printed(rows, width)

    assert all(word in shown for row in rows for cell in row for word in cell.split() if len(word) < 16)
    assert "\u2026" not in shown
