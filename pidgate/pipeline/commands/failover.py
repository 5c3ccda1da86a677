"""`pidgate pipeline failover`: reads events, writes results/failover_..., prints the operator's summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.arrivals import arrivals
from pidgate.pipeline.commands import common
from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.errors import BadOption
from pidgate.pipeline.expiry import expiration_ms
from pidgate.pipeline.failover import kip, words
from pidgate.pipeline.failover.cascade import BASE_BYTES, BYTES_PER_STATE, MEBIBYTE, Heap
from pidgate.pipeline.failover.held import held, lives
from pidgate.pipeline.failover.loads import named_plan, uniform_plans
from pidgate.pipeline.failover.placement import (
    bucket_in_force,
    enforced,
    even_shares,
    shares,
)
from pidgate.pipeline.failover.study import NO_QUOTA, Answer, Options, Past, study
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.tables import Tables

ROWS = (
    "quota string, scenario string, broker bigint, hour_ms bigint, ids bigint, states bigint, heap_bytes bigint, "
    "dead boolean"
)
SUMMARY = (
    "quota string, scenario string, deaths bigint, brokers_dead array<bigint>, first_death_ms bigint, "
    "peak_heap_bytes bigint, peak_broker bigint, peak_hour_ms bigint, heap_limit_bytes bigint, holds boolean"
)
KIP_ROWS = "rule string, step bigint, broker bigint, load double, dead boolean"
HEAP_MB, REOPENS, BROKERS = 1024, 1.0, 3
USABLE_SHARE: Final = 0.9
"""Share of the heap that may be live: a broker with less to spare only collects garbage."""


def failover(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    heap_mb: Annotated[int, typer.Option(min=1, help="Heap of one broker, MiB.")] = HEAP_MB,
    base_heap_mb: Annotated[
        float | None, typer.Option(help="Live heap without producer states, MiB (default: a small broker's).")
    ] = None,
    bytes_per_state: Annotated[
        float | None, typer.Option(help="Heap of one (id, partition), bytes (default: as measured).")
    ] = None,
    lose: Annotated[int | None, typer.Option(help="Broker to lose (default: the fullest one).")] = None,
    reassign: Annotated[
        bool, typer.Option("--reassign", help="Move a dead broker's replicas to the others.")
    ] = False,
    reopens: Annotated[
        float, typer.Option(min=0, help="New producers per active id when a broker dies.")
    ] = REOPENS,
    quota: Annotated[
        list[float] | None, typer.Option(help="A rate to try for all users, ids per window; repeatable.")
    ] = None,
    brokers: Annotated[
        int, typer.Option(min=1, help="Number of brokers without a topology event.")
    ] = BROKERS,
    replication_factor: Annotated[
        int, typer.Option(min=1, help="The same without a topology event.")
    ] = BROKERS,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON on stdout.")] = False,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Simulate broker deaths with and without quotas, and find the quota that protects a heap."""
    heap, days = _heap(heap_mb, base_heap_mb, bytes_per_state), Days.parsed(since, until)
    at, console = common.start("failover", tables, master, memory)
    console.print(words.kip_table())
    try:
        with console.status("running the model"), replacing(at) as run:
            answer = answer_from(
                run, Options(heap, lose, reassign), quota or [], reopens, (brokers, replication_factor), days
            )
    finally:
        at.spark.stop()
    console.print(words.kafka_table(answer, heap))
    for sentence in words.sentences(answer, heap):
        console.print(sentence)
    console.print(f"Written: failover_kip, failover_kafka and failover_summary under {at.path('results')}.")
    if as_json:
        print(words.as_json(answer, heap))


def write_failover(run: Run, say: common.Say, days: Days = EVER, heap_bytes: int | None = None) -> None:
    """Write all tables of the job. Without a heap it is an example's, and said to be. Raises HistoryEmpty."""
    if heap_bytes is None:
        say(f"The brokers' heap is not known (--heap): the model runs with an example of {HEAP_MB} MiB.")
    heap = _heap(HEAP_MB if heap_bytes is None else heap_bytes // MEBIBYTE, None, None)
    answer = answer_from(run, Options(heap), [], REOPENS, (BROKERS, BROKERS), days)
    for sentence in words.sentences(answer, heap):
        say(sentence)


def _heap(heap_mb: int, base_heap_mb: float | None, bytes_per_state: float | None) -> Heap:
    base_bytes = BASE_BYTES if base_heap_mb is None else base_heap_mb * MEBIBYTE
    heap = Heap(heap_mb * MEBIBYTE, base_bytes, bytes_per_state or BYTES_PER_STATE, USABLE_SHARE)
    if heap.states_that_fit <= 0:
        raise BadOption(
            f"a heap of {heap_mb} MiB has no room for states besides {base_bytes / MEBIBYTE:.0f} MiB of base heap: "
            "raise --heap-mb, or lower --base-heap-mb."
        )
    return heap


def answer_from(
    run: Run,
    options: Options,
    rates: Sequence[float],
    reopens: float,
    size: tuple[int, int],
    days: Days = EVER,
) -> Answer:
    """Read the events of these days, run the model, write the three results.

    `size`: brokers and replication factor if there is no topology event.
    """
    tables = run.tables
    _write_kip(run)
    past = _past(tables, days, reopens, *size)
    try:
        answer = study(past, _plans(tables, past, rates), options)
    finally:
        past.held.unpersist()
        past.shares.unpersist()
    _write(run, answer, options.heap)
    return answer


def _past(tables: Tables, days: Days, reopens: float, brokers: int, replication_factor: int) -> Past:
    decisions = tables.needed_events("decision", days)
    topology, config = tables.events("topology"), tables.events("config")
    expiry_ms = expiration_ms(tables)
    of_topics = shares(topology).persist()
    if of_topics.isEmpty():
        of_topics = even_shares(tables.spark, brokers, replication_factor)
    lived = lives(arrivals(decisions), days.of(tables.events("id_usage")))
    holding = held(lived, expiry_ms).persist()
    return Past.of(
        holding, of_topics, _reopening(tables, holding, reopens), bucket_in_force(config), expiry_ms
    )


def _reopening(tables: Tables, holding: DataFrame, reopens: float) -> DataFrame:
    """Return the users that `offenders` reports as harmful; without its results all users, the worst case."""
    found = tables.result("offenders")
    who = holding if found is None else found.where("harmful")
    return who.select("user").distinct().withColumn("reopens", f.lit(float(reopens)))


def _plans(tables: Tables, past: Past, rates: Sequence[float]) -> DataFrame:
    """Return the plans: no quota, the quotas in force, those of `recommend`, and the given rates."""
    plans = uniform_plans(past.users, {NO_QUOTA: None, **{f"{rate:g} each": rate for rate in rates}})
    in_force = enforced(tables.events("config"))
    if in_force is not None:
        plans = plans.unionByName(named_plan(past.users, "in force", *in_force))
    recommended = tables.result("recommendations")
    if recommended is not None:
        rates_of = recommended.selectExpr("user", "coalesce(recommended_rate, current_rate) rate")
        plans = plans.unionByName(named_plan(past.users, "recommended", rates_of, past.bucket.default_rate))
    return plans


def _write_kip(run: Run) -> None:
    rows = [
        (one.rule, one.step, one.broker, float(one.load), one.dead)
        for rule in kip.RULES
        for one in kip.run(rule)
    ]
    # One partition, because the report shows the steps in file order.
    run.write("failover_kip", run.tables.spark.createDataFrame(rows, KIP_ROWS).coalesce(1))


def _write(run: Run, answer: Answer, heap: Heap) -> None:
    rows, summary = [], []
    for verdict in answer.verdicts:
        for row in verdict.rows:
            held = (round(row.ids), round(row.states), round(heap.used_bytes(row.states)))
            rows.append((verdict.quota, verdict.scenario, row.broker, row.hour_ms, *held, row.dead))
        dead = [broker for _, broker in verdict.deaths]
        first_ms = verdict.deaths[0][0] if verdict.deaths else None
        peak = (
            round(verdict.peak_heap_bytes),
            verdict.peak_broker,
            verdict.peak_hour_ms,
            round(heap.limit_bytes),
        )
        summary.append((verdict.quota, verdict.scenario, len(dead), dead, first_ms, *peak, verdict.holds))
    spark = run.tables.spark
    run.write("failover_kafka", spark.createDataFrame(rows, ROWS))
    run.write("failover_summary", spark.createDataFrame(summary, SUMMARY))
