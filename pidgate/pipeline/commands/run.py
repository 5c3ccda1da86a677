"""`pidgate pipeline run`: all jobs in dependency order, in one Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import pyarrow.dataset as ds
import typer

from pidgate.client_settings import KafkaConfigOption
from pidgate.pipeline.commands import common, ingest, recommend
from pidgate.pipeline.commands.analyses import write_ids, write_offenders, write_rates
from pidgate.pipeline.commands.failover import write_failover
from pidgate.pipeline.commands.report import OutputOption, show, write_report
from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.engines import Results, results_of
from pidgate.pipeline.errors import BadOption, HistoryEmpty
from pidgate.pipeline.ingest.batches import How
from pidgate.pipeline.ingest.topic import Topic
from pidgate.pipeline.passes import FAILOVER, IDS, OFFENDERS, RATES, RECOMMEND, Pass
from pidgate.pipeline.recommend.chosen import Asked
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.schemas import PARTITIONS, table_schema
from pidgate.pipeline.tables import Tables

REPORT: Final = "report"
SAMPLE_FOLDER: Final = "pidgate-sample"
"""Tables of the sample that ships with the package: three days of made-up users, to try `--engine local`."""
_SAMPLE_EVENTS: Final = Path(__file__).parents[1] / "sample_events"


Jobs = dict[str, Callable[[Run, common.Say], object]]
"""Job -> the function that writes its results, which replace the previous ones together after it returns."""


@common.command
def run(
    call: common.Call,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", help="Bootstrap servers: ingest the events topic first."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Run only this job (rates, ..., report); repeatable."),
    ] = None,
    topic: ingest.TopicOption = ingest.EVENTS_TOPIC,
    kafka_config: KafkaConfigOption = None,
    least_history: recommend.LeastHistoryOption = recommend.LEAST_HISTORY,
    heap: common.HeapOption = None,
    after_mending: recommend.AfterMendingOption = False,
    enforce: recommend.EnforceOption = False,
    bootstrap_servers: recommend.ServersOption = "",
    output: OutputOption = None,
) -> None:
    """Run all jobs, from the topic to the report, in one Spark session. An error names the failed job."""
    if kafka is not None and call.is_local:
        raise BadOption("--kafka: the topic is read by Spark alone. Leave out --engine local, or --kafka.")
    days, settings = call.days, ingest.settings_of(kafka_config)
    asked = Asked(
        least_history_ms=common.duration_ms(least_history, "--least-history"),
        after_mending=after_mending,
        heap_bytes=common.heap_of(heap),
        enforce=enforce,
        servers=bootstrap_servers,
    )
    todo = chosen(jobs(days, asked, only), only)
    with_report = not only or REPORT in only
    root, console = call.tables, call.console
    if call.is_local and root.root == common.DEFAULT_TABLES and not root.exists("events"):
        root = sample_tables()
        console.print(
            f"There are no events in {common.DEFAULT_TABLES}: this is the sample of made-up users, in {root.root}."
        )
    names = [*(["ingest"] if kafka is not None else []), *todo, *([REPORT] if with_report else [])]
    progress = common.Progress(console, names)
    if kafka is not None:
        with _named(progress, "ingest"):
            ingest.take_events(root, Topic(kafka, topic, settings), How(), progress.say)
    run_jobs(root, todo, days, progress)
    if with_report:
        with _named(progress, REPORT):
            made = write_report(root, output)
        show(console, made, as_json=call.as_json)


def sample_tables() -> Tables:
    """Return the tables of the sample; written on first use."""
    tables, folders = Tables(None, SAMPLE_FOLDER), PARTITIONS.names
    for events in sorted(_SAMPLE_EVENTS.glob("*.parquet")):
        if not tables.exists("events", events.stem):
            columns = [*table_schema(events.stem).names, *folders]
            ds.write_dataset(
                ds.dataset(events).scanner(columns),
                Path(SAMPLE_FOLDER, "events", events.stem),
                format="parquet",
                partitioning=folders,
                partitioning_flavor="hive",
            )
    return tables


def chosen(every: Jobs, only: Sequence[str] | None) -> Jobs:
    """Return the jobs selected by `--only` in order, or all jobs. Raises BadOption."""
    if not only:
        return every
    names = [*every, REPORT]
    if unknown := [name for name in only if name not in names]:
        raise BadOption(f"--only {unknown[0]}: there is no such job. Choose from {', '.join(names)}.")
    return {name: every[name] for name in every if name in only}


def jobs(days: Days = EVER, asked: Asked = recommend.DEFAULTS, only: Sequence[str] | None = None) -> Jobs:
    """Return all jobs that write results, in dependency order. All but `recommend` share one pass over the events."""
    sharing = [job for job in (RATES, OFFENDERS, IDS, FAILOVER) if not only or job in only]
    computed: list[tuple[Pass, Results]] = []

    def shared(run: Run) -> tuple[Pass, Results]:
        if not computed:
            todo = common.pass_over(run.tables, days, *sharing)
            computed.append((todo, results_of(todo, run, days)))
        return computed[0]

    def ids(run: Run, say: common.Say) -> None:
        try:
            run.tables.check_events("init_producer_id", days)
        except HistoryEmpty as nothing:
            # The other jobs work without InitProducerId, and old clients may send none.
            say(f"left out: {nothing}")
        else:
            write_ids(run, shared(run)[1])

    return {
        RATES: lambda run, say: write_rates(run, say, *shared(run)),
        OFFENDERS: lambda run, say: write_offenders(run, shared(run)[1]),
        RECOMMEND: lambda run, say: recommend.write_recommendations(run, say, days, asked),
        IDS: ids,
        FAILOVER: lambda run, say: write_failover(run, say, shared(run)[1], asked.heap_bytes),
    }


def run_jobs(tables: Tables, todo: Jobs, days: Days, progress: common.Progress) -> None:
    """Run jobs one by one; a failure keeps the results of those before it. Raises the job's error."""
    if todo:
        tables.check_events("decision", days)
    with replacing(tables) as whole:
        for name, write in todo.items():
            with _named(progress, name), replacing(tables, whole) as run:
                write(run, progress.say)


@contextmanager
def _named(progress: common.Progress, job: str) -> Iterator[None]:
    """Show the job's progress and add its name to an error."""
    try:
        with progress.of(job):
            yield
    except Exception as error:
        error.add_note(f"(Job {job} failed: its previous results are unchanged. Earlier jobs are done.)")
        raise
