"""`pidgate pipeline run`: all jobs in dependency order, in one Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Console

from pidgate.client_settings import KafkaConfigOption
from pidgate.pipeline import session
from pidgate.pipeline.commands import common
from pidgate.pipeline.commands.failover import write_failover
from pidgate.pipeline.commands.ids import write_ids
from pidgate.pipeline.commands.ingest import (
    EVENTS_TOPIC,
    TopicOption,
    settings_of,
    take_events,
)
from pidgate.pipeline.commands.offenders import show_offenders, write_offenders
from pidgate.pipeline.commands.progress import Progress
from pidgate.pipeline.commands.rates import show_rates, write_rates
from pidgate.pipeline.commands.recommend import (
    DEFAULTS,
    LEAST_HISTORY,
    AfterMendingOption,
    EnforceOption,
    HeapOption,
    LeastHistoryOption,
    ServersOption,
    heap_of,
    write_files,
    write_recommendations,
)
from pidgate.pipeline.commands.report import OutputOption, show, write_report
from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.engines import Engine, Write, results_of
from pidgate.pipeline.errors import BadOption, HistoryEmpty
from pidgate.pipeline.ingest.loop import How
from pidgate.pipeline.ingest.topic import Topic
from pidgate.pipeline.passes import JOBS as PASS_JOBS
from pidgate.pipeline.passes import OFFENDERS, RATES, Pass
from pidgate.pipeline.recommend.chosen import Asked
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.sample import sample_tables
from pidgate.pipeline.tables import Tables

REPORT: Final = "report"


@dataclass(frozen=True, slots=True)
class Job:
    """A job. Its results replace the previous ones together after `write` returns."""

    name: str
    write: Callable[[Run, common.Say], object]


def run(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", help="Bootstrap servers: ingest the events topic first."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Run only this job (rates, ..., report); repeatable."),
    ] = None,
    topic: TopicOption = EVENTS_TOPIC,
    kafka_config: KafkaConfigOption = None,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    least_history: LeastHistoryOption = LEAST_HISTORY,
    heap: HeapOption = None,
    after_mending: AfterMendingOption = False,
    enforce: EnforceOption = False,
    bootstrap_servers: ServersOption = "",
    output: OutputOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON on stdout.")] = False,
    engine: common.EngineOption = Engine.SPARK,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Run all jobs, from the topic to the report, in one Spark session. An error names the failed job."""
    days, settings = Days.parsed(since, until), settings_of(kafka_config)
    if engine is Engine.LOCAL:
        _first_look(tables, days, only, as_json=as_json)
        return
    least_ms = common.duration_ms(least_history, "--least-history")
    asked = Asked(least_history_ms=least_ms, after_mending=after_mending)
    of_heap = heap_of(heap)
    every = jobs(days, asked, only=only, heap_bytes=of_heap, enforce=enforce, servers=bootstrap_servers)
    todo = chosen(every, only)
    with_report = not only or REPORT in only
    spark = session.spark_session("run", master=master, memory=memory)
    root, console = Tables(spark, tables), Console(stderr=True)
    names = [
        *(["ingest"] if kafka is not None else []),
        *(job.name for job in todo),
        *([REPORT] if with_report else []),
    ]
    progress = Progress(console, names)
    if kafka is not None:
        with _named(progress, "ingest"):
            take_events(root, Topic(kafka, topic, settings), How(), progress.say)
    run_jobs(root, todo, days, progress)
    if with_report:
        with _named(progress, REPORT):
            made = write_report(root, output)
        show(console, made, as_json=as_json)


def _first_look(tables: str, days: Days, only: Sequence[str] | None, *, as_json: bool) -> None:
    """Run the jobs that need no Spark and show what they found; without tables of one's own on the shipped sample."""
    at, console = common.start("run", tables, None, "", Engine.LOCAL)
    if tables == common.DEFAULT_TABLES and not at.exists("events"):
        at = sample_tables()
        console.print(f"There are no events in {tables}: this is the sample of made-up users, in {at.root}.")
    todo = chosen([job for job in jobs(days, only=only) if job.name in PASS_JOBS], only)
    run_jobs(at, todo, days, Progress(console, [job.name for job in todo]))
    names = [job.name for job in todo]
    if RATES in names:
        show_rates(at, console)
    if OFFENDERS in names:
        show_offenders(at, console, as_json=as_json)
    console.print(
        f"Written to {at.path('results')}. Recommendations and the report need Spark: `pidgate pipeline run --tables "
        f"{at.root}` (Java 17 or 21)."
    )


def chosen(every: Sequence[Job], only: Sequence[str] | None) -> Sequence[Job]:
    """Return the jobs selected by `--only` in order, or all jobs. Raises BadOption."""
    if not only:
        return every
    names = [*(job.name for job in every), REPORT]
    if unknown := [name for name in only if name not in names]:
        raise BadOption(f"--only {unknown[0]}: there is no such job. Choose from {', '.join(names)}.")
    return [job for job in every if job.name in only]


class _SharedPass:
    """The pass for `rates` and `offenders`, computed by the first of the two that runs."""

    def __init__(self, days: Days, only: Sequence[str] | None) -> None:
        self._days = days
        self._jobs = [job for job in PASS_JOBS if not only or job in only]
        self._computed: tuple[Pass, Write] | None = None

    def over(self, run: Run) -> tuple[Pass, Write]:
        if self._computed is None:
            todo = common.pass_over(run.tables, self._days, *self._jobs)
            self._computed = todo, results_of(todo, run.tables, self._days, run.whole.keep)
        return self._computed


def jobs(
    days: Days = EVER,
    asked: Asked = DEFAULTS,
    *,
    only: Sequence[str] | None = None,
    heap_bytes: int | None = None,
    enforce: bool = False,
    servers: str = "",
) -> Sequence[Job]:
    """Return all jobs that write results, in dependency order."""
    shared = _SharedPass(days, only)

    def recommend(run: Run, say: common.Say) -> None:
        advised = write_recommendations(run, say, days=days, asked=asked, heap_bytes=heap_bytes)
        write_files(run, say, advised, enforce=enforce, servers=servers)

    def ids(run: Run, say: common.Say) -> None:
        try:
            write_ids(run, days, say)
        except HistoryEmpty as nothing:
            # The other jobs work without InitProducerId, and old clients may send none.
            say(f"left out: {nothing}")

    return (
        Job(RATES, lambda run, say: write_rates(run, say, *shared.over(run))),
        Job(OFFENDERS, lambda run, say: write_offenders(run, shared.over(run)[1])),
        Job("recommend", recommend),
        Job("ids", ids),
        Job("failover", lambda run, say: write_failover(run, say, days, heap_bytes)),
    )


def run_jobs(tables: Tables, todo: Sequence[Job], days: Days, progress: Progress) -> None:
    """Run jobs one by one; a failure keeps the results of those before it. Raises the job's error."""
    if todo:
        tables.check_events("decision", days)
    with replacing(tables) as whole:
        for job in todo:
            with _named(progress, job.name), replacing(tables, whole) as run:
                job.write(run, progress.say)


@contextmanager
def _named(progress: Progress, job: str) -> Iterator[None]:
    """Show the job's progress and add its name to an error."""
    try:
        with progress.of(job):
            yield
    except Exception as error:
        error.add_note(f"(Job {job} failed: its previous results are unchanged. Earlier jobs are done.)")
        raise
