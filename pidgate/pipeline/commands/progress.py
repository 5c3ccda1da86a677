"""Progress of several jobs in sequence: timestamped lines, and on a terminal a status line below them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.table import Table
from rich.text import Text


class Progress:
    """Printer of progress lines. `jobs`: all jobs to run, in order."""

    def __init__(self, console: Console, jobs: Sequence[str]) -> None:
        self._console = console
        self._jobs = jobs
        self._job = ""
        self._began_s = time.monotonic()

    @contextmanager
    def of(self, job: str) -> Iterator[None]:
        """Show this job as running until the block ends, then its outcome."""
        self._job, began_s = job, time.monotonic()
        number = f"{self._jobs.index(job) + 1} of {len(self._jobs)}"
        running = self._console.status(f"{job}, {number}") if self._console.is_terminal else nullcontext()
        try:
            with running:
                yield
        except BaseException:
            self.say(f"failed after {time.monotonic() - began_s:.0f} s", style="bold red")
            raise
        self.say(f"done ({number}) in {time.monotonic() - began_s:.0f} s", style="green")

    def say(self, step: str, style: str = "") -> None:
        """Print a step of the running job."""
        took = f"{time.monotonic() - self._began_s:4.0f} s"
        if not self._console.is_terminal:
            # Log lines are not wrapped.
            self._console.print(Text(f"{took}  {self._job:<9}  {step}"), soft_wrap=True)
            return
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_row(Text(took, style="dim"), Text(f"{self._job:<9}", style="bold"), Text(step, style=style))
        self._console.print(line)
