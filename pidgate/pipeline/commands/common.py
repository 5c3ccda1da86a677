"""Options and first steps shared by all jobs."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pidgate import units
from pidgate.pipeline import session
from pidgate.pipeline.days import Days
from pidgate.pipeline.engines import Results, results_of
from pidgate.pipeline.errors import BadOption
from pidgate.pipeline.failover.cascade import BASE_BYTES, Heap
from pidgate.pipeline.in_force import expiration_ms, newest_event, settings
from pidgate.pipeline.passes import Pass
from pidgate.pipeline.runs import Run
from pidgate.pipeline.tables import Tables

TablesOption = Annotated[
    str, typer.Option("--tables", help="Root folder of all tables; local, or any that Spark can write.")
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        help="Spark master, or sc://host of Spark Connect (default: local[*], or spark-submit's).",
    ),
]
MemoryOption = Annotated[str, typer.Option("--memory", help="Heap of the JVM when embedded: 2g, 900m.")]
EngineOption = Annotated[
    Literal["spark", "local"],
    typer.Option("--engine", help="spark, or local: a first look in one process, without Java."),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="First day (2026-11-01, UTC) to read; folders before it are not opened."),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Last day to read, included.")]

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]

HeapOption = Annotated[
    str | None,
    typer.Option("--heap", help="Heap of one broker (6GiB), to show the share that producer states take."),
]

Say = Callable[[str], None]
"""Callback that shows a step of a job."""

DEFAULT_TABLES = "pidgate-tables"
DEFAULT_MEMORY = "2g"


@dataclass
class Call:
    """A call of a command by the options that all jobs over the events have."""

    job: str
    root: str
    days: Days
    as_json: bool
    is_local: bool
    """Without Spark."""
    master: str | None
    memory: str
    console: Console

    @cached_property
    def tables(self) -> Tables:
        """Return the tables; the first use starts the engine. Raises SparkUnfit, JavaUnfit."""
        if self.is_local:
            self.console.print(
                "First look (--engine local): the same kernels in this process, without Spark."
            )
            return Tables(None, self.root)
        return Tables(session.spark_session(self.job, master=self.master, memory=self.memory), self.root)

    def results(self, run: Run, *jobs: str) -> tuple[Pass, Results]:
        """Compute the results of these jobs, in one pass over the events. Raises HistoryEmpty."""
        todo = pass_over(run.tables, self.days, *jobs)
        return todo, results_of(todo, run, self.days)


def command(work: Callable[..., None]) -> Callable[..., None]:
    """Return a command that calls a function with a Call, and with the function's own options."""

    def call(
        tables: TablesOption = DEFAULT_TABLES,
        since: SinceOption = None,
        until: UntilOption = None,
        as_json: JsonOption = False,
        engine: EngineOption = "spark",
        master: MasterOption = None,
        memory: MemoryOption = DEFAULT_MEMORY,
        **own: Any,
    ) -> None:
        days, console = Days.parsed(since, until), Console(stderr=True)
        work(Call(work.__name__, tables, days, as_json, engine == "local", master, memory, console), **own)

    shared, own = (list(inspect.signature(one, eval_str=True).parameters.values()) for one in (call, work))
    options = [*shared[:3], *own[1:], *shared[3:-1]]
    call.__name__, call.__doc__ = work.__name__, work.__doc__
    call.__signature__ = inspect.Signature([one.replace(kind=one.KEYWORD_ONLY) for one in options])  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in options}
    return call


def pass_over(tables: Tables, days: Days, *jobs: str) -> Pass:
    """Return what to compute for these jobs, with the durations of the newest events. Raises HistoryEmpty."""
    tables.check_events("decision", days)
    return Pass(jobs, settings(newest_event(tables, "config")).remember_ms, expiration_ms(tables))


def print_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print each row as a JSON line on stdout."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


def duration_ms(text: str, option: str) -> int:
    """Parse a duration such as 30s, 15m, 24h or 7d as milliseconds. Raises BadOption with the option's name."""
    return _parsed(units.duration_ms, text, option)


def size_of(text: str | None, option: str) -> int | None:
    """Parse a size such as 6GiB. Raises BadOption with the option's name."""
    return None if text is None else _parsed(units.size_bytes, text, option)


def _parsed(parse: Callable[[object], int], text: str, option: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise BadOption(f"{option}: {error}") from error


def heap_of(text: str | None, base_bytes: int = BASE_BYTES) -> int | None:
    """Parse a heap such as 6GiB. Raises BadOption, also if no state fits it."""
    heap_bytes = size_of(text, "--heap")
    if heap_bytes is not None and Heap(heap_bytes, base_bytes).states_that_fit <= 0:
        raise BadOption(f"--heap {text}: a broker with so little heap has no room for producer states.")
    return heap_bytes


class Progress:
    """Progress of several jobs: timestamped lines, and on a terminal a status line. `jobs`: all to run, in order."""

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
