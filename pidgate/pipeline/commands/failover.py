"""`pidgate pipeline failover`: reads events, writes results/failover_..., prints the operator's summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import pyarrow as pa
import typer

from pidgate.pipeline import in_force
from pidgate.pipeline.commands.common import Call, HeapOption, Say, command, heap_of, print_rows, size_of
from pidgate.pipeline.engines import Results
from pidgate.pipeline.failover import words
from pidgate.pipeline.failover.cascade import BASE_BYTES, Heap
from pidgate.pipeline.failover.study import NO_QUOTA, Answer, Options, Past, Plan, ends, study
from pidgate.pipeline.passes import FAILOVER
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.schemas import schema_of
from pidgate.pipeline.tables import Tables
from pidgate.units import about_size

_HOURS: Final = schema_of("string: quota scenario; int64: broker hour_ms ids states heap_bytes; bool: dead")
_SUMMARY: Final = pa.schema(
    [
        *schema_of("string: quota scenario; int64: deaths"),
        ("brokers_dead", pa.list_(pa.int64())),
        *schema_of("int64: first_death_ms peak_heap_bytes peak_broker peak_hour_ms heap_limit_bytes"),
        ("holds", pa.bool_()),
    ]
)
EXAMPLE_HEAP: Final = 2**30
REOPENS: Final = 1.0
"""New producers per active id of a user whose clients reopen when a broker dies."""
BROKERS: Final = 3
"""Brokers, and replicas of each partition, without a topology event."""


@command
def failover(
    call: Call,
    heap: HeapOption = None,
    base_heap: Annotated[
        str | None, typer.Option(help="Live heap without producer states (default: a small broker's).")
    ] = None,
    lose: Annotated[int | None, typer.Option(help="Broker to lose (default: the fullest one).")] = None,
    reassign: Annotated[
        bool, typer.Option("--reassign", help="Move a dead broker's replicas to the others.")
    ] = False,
    quota: Annotated[
        list[float] | None, typer.Option(help="A rate to try for all users, ids per window; repeatable.")
    ] = None,
) -> None:
    """Simulate broker deaths with and without quotas, and find the quota that protects a heap."""
    base_bytes = size_of(base_heap, "--base-heap") or BASE_BYTES
    of_heap = Heap(heap_of(heap, base_bytes) or EXAMPLE_HEAP, base_bytes)
    tables, console = call.tables, call.console
    console.print(words.kip_table())
    with console.status("running the model"), replacing(tables) as run:
        options = Options(of_heap, lose, reassign)
        answer = answer_from(run, call.results(run, FAILOVER)[1], options, quota or [])
    console.print(words.kafka_table(answer, of_heap))
    for sentence in words.sentences(answer, of_heap):
        console.print(sentence)
    console.print(
        f"Written: failover_kip, failover_kafka and failover_summary under {tables.path('results')}."
    )
    if call.as_json:
        print_rows(tables.query("failover_summary"))


def write_failover(run: Run, say: Say, found: Results, heap_bytes: int | None = None) -> None:
    """Write all tables of the job. Without a heap it is an example's, and said to be. Raises HistoryEmpty."""
    if heap_bytes is None:
        say(
            f"The brokers' heap is not known (--heap): the model runs with an example of {about_size(EXAMPLE_HEAP)}."
        )
    heap = Heap(heap_bytes or EXAMPLE_HEAP)
    answer = answer_from(run, found, Options(heap))
    for sentence in words.sentences(answer, heap):
        say(sentence)


def answer_from(run: Run, found: Results, options: Options, rates: Sequence[float] = ()) -> Answer:
    """Run the model and write its three results."""
    tables = run.tables
    run.write("failover_kip", words.kip_rows())
    ask = partial(found.each, "failover_past")
    config, harmful = in_force.newest_event(tables, "config"), None
    if tables.exists("results", "offenders"):
        harmful = {row["user"] for row in tables.query("offenders", 'select "user" from found where harmful')}
    past = Past(
        ask,
        in_force.shares(tables) or in_force.even_shares(BROKERS, BROKERS),
        in_force.settings(config),
        in_force.expiration_ms(tables),
        harmful,
        REOPENS,
        *ends(ask),
    )
    answer = study(past, _plans(tables, rates), options)
    _write(run, answer, options.heap)
    return answer


def _plans(tables: Tables, rates: Sequence[float]) -> Mapping[str, Plan]:
    """Return the plans: no quota, the quotas in force, those of `recommend`, and the given rates."""
    plans = {NO_QUOTA: Plan(), **{f"{rate:g} each": Plan(rate) for rate in rates}}
    default, of_users = in_force.enforced(config := in_force.newest_event(tables, "config"))
    if default is not None or any(rate is not None for rate in of_users.values()):
        plans["in force"] = Plan(default, of_users)
    if tables.exists("results", "recommendations"):
        rows = tables.query(
            "recommendations", 'select "user", coalesce(recommended_rate, current_rate) as rate from found'
        )
        plans["recommended"] = Plan(
            in_force.quotas_of(config)(None)["current_rate"], {row["user"]: row["rate"] for row in rows}
        )
    return plans


def _write(run: Run, answer: Answer, heap: Heap) -> None:
    hours, summary = [], []
    for found in answer.verdicts:
        what: dict[str, Any] = {"quota": found.quota, "scenario": found.scenario}
        for row in found.rows:
            whole = {"ids": row.ids, "states": row.states, "heap_bytes": heap.used_bytes(row.states)}
            held = {name: round(value) for name, value in whole.items()}
            hours.append({**what, "broker": row.broker, "hour_ms": row.hour_ms, **held, "dead": row.dead})
        summary.append(
            {
                **what,
                "deaths": len(found.deaths),
                "brokers_dead": [broker for _, broker in found.deaths],
                "first_death_ms": found.deaths[0][0] if found.deaths else None,
                "peak_heap_bytes": round(found.peak_heap_bytes),
                "peak_broker": found.peak_broker,
                "peak_hour_ms": found.peak_hour_ms,
                "heap_limit_bytes": round(heap.limit_bytes),
                "holds": found.holds,
            }
        )
    run.write("failover_kafka", pa.Table.from_pylist(hours, _HOURS))
    run.write("failover_summary", pa.Table.from_pylist(summary, _SUMMARY))
