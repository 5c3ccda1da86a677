"""Standard output as a rich console, which prints client names unchanged."""

from typing import Final

from rich.console import Console

WIDTH_WITHOUT_TERMINAL: Final = 120


def plain_console(width_without_terminal: int = WIDTH_WITHOUT_TERMINAL) -> Console:
    """Return a console without markup. Into a pipe or file it is `width_without_terminal` columns wide."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = width_without_terminal
    return console
