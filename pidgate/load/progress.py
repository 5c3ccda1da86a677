"""Progress of a run on stderr: a table once a second on a terminal, else a line every five seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from pidgate.load.plan import Plan
from pidgate.load.running import Show, Tallies
from pidgate.load.tally import Tally

_LINE_EVERY: Final = 5


@contextmanager
def progress(plan: Plan) -> Iterator[Show]:
    """Yield the function that `run` calls."""
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda seconds, tallies: live.update(_table(plan, seconds, tallies), refresh=True)
        return

    def line(seconds: float, tallies: Tallies) -> None:
        if round(seconds) % _LINE_EVERY == 0:
            parts = [f"{kind}: {_line(tally)}" for kind, tally in tallies.items()]
            console.print(f"{seconds:.0f} s  {'; '.join(parts)}", soft_wrap=True)

    yield line


def _line(tally: Tally) -> str:
    text = f"{tally.acknowledged:,} of {tally.due:,} acknowledged"
    refused = tally.refused.total()
    if refused:
        text += f", {refused:,} refused"
    if tally.ids > 1:
        text += f", {tally.ids:,} ids"
    p99 = tally.latency.percentile_ms(99.0)
    return text if p99 is None else f"{text}, p99 {p99:.1f} ms"


def _table(plan: Plan, seconds: float, tallies: Tallies) -> Table:
    table = Table(
        "", "due", "acknowledged", "refused", "ids", "p50 ms", "p99 ms", "max ms", box=None, pad_edge=False
    )
    table.title = f"{seconds:.0f} of {plan.duration_s:g} s to {plan.topic}"
    for column in table.columns[1:]:
        column.justify = "right"
    for kind, tally in tallies.items():
        latency = tally.latency
        times = (latency.percentile_ms(50.0), latency.percentile_ms(99.0), latency.max_ms)
        table.add_row(
            kind,
            f"{tally.due:,}",
            f"{tally.acknowledged:,}",
            f"{tally.refused.total():,}",
            f"{tally.ids:,}",
            *("" if value is None else f"{value:,.1f}" for value in times),
        )
    return table
