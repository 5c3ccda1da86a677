"""Standard output as a rich console, which prints client names unchanged, and tables for any width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

WIDTH_WITHOUT_TERMINAL: Final = 120
_BETWEEN: Final = 3
"""Columns between two columns of a table: the padding and the space of the box."""
_NARROWEST: Final = 22
"""A column of phrases that had to be narrower would have a word a line."""

Row = Sequence[str]


def plain_console(width_without_terminal: int = WIDTH_WITHOUT_TERMINAL) -> Console:
    """Return a console without markup. Into a pipe or file it is `width_without_terminal` columns wide."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = width_without_terminal
    return console


def print_table(
    console: Console, columns: Row, rows: Sequence[Row], *, right: Sequence[str] = (), title: str = ""
) -> None:
    """Print rows as a table that wraps between words only, or as lines `column  cell` where it is too narrow.

    Columns without a cell are left out. Columns in `right` are aligned to the right.
    """
    used = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    names = [columns[place] for place in used]
    cells = [[Text(row[place], overflow="fold") for place in used] for row in rows]
    widths = _widths(console, names, cells)
    if title:
        console.print(Text(title, style="bold"))
    if widths is None:
        _print_lines(console, names, cells)
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, width in zip(names, widths, strict=True):
        table.add_column(name, width=width, justify="right" if name in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _widths(console: Console, names: Row, rows: Sequence[Sequence[Text]]) -> list[int] | None:
    """Return the width of each column; the widest give way first. None: there is too little room."""
    columns = zip([Text(name) for name in names], *rows, strict=True)
    measured = [[Measurement.get(console, console.options, cell) for cell in column] for column in columns]
    widths = [max(one.maximum for one in column) for column in measured]
    words = [max(one.minimum for one in column) for column in measured]
    least = [max(word, min(width, _NARROWEST)) for word, width in zip(words, widths, strict=True)]
    room = console.width - _BETWEEN * (len(names) - 1)
    if sum(least) > room:
        return None
    while (excess := sum(widths) - room) > 0:
        widest = max(
            (place for place in range(len(widths)) if widths[place] > least[place]),
            key=lambda place: widths[place],
        )
        widths[widest] = max(least[widest], widths[widest] - excess)
    return widths


def _print_lines(console: Console, names: Row, rows: Sequence[Sequence[Text]]) -> None:
    for row in rows:
        block = Table.grid(padding=(0, 2))
        block.add_column(no_wrap=True)
        block.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            if cell.plain:
                block.add_row(name, cell)
        console.print(block)
        console.print()
