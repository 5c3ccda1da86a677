"""Standard output as a console of rich, which shows names of clients as they are."""

from typing import Final

from rich.console import Console

WIDTH_WITHOUT_TERMINAL: Final = 120


def plain_console(width_without_terminal: int = WIDTH_WITHOUT_TERMINAL) -> Console:
    """Return a console that interprets nothing in what it prints; into a pipe or file it is so many columns wide."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = width_without_terminal
    return console
