"""One history of eight days, and what the real jobs wrote of it: a rogue, a hostile name, and quiet users.

The only source of result tables for tests of the report: a table made by hand means what its maker believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from pidgate.events.definitions import (
    BrokerPlace,
    ConfigEvent,
    DecisionEvent,
    Event,
    QuotaInForce,
    TopicPlaces,
    TopologyEvent,
)
from pidgate.findings.patterns import Pattern
from pidgate.pipeline.commands.common import Progress, Say, pass_over
from pidgate.pipeline.commands.failover import answer_from
from pidgate.pipeline.commands.run import jobs, run_jobs
from pidgate.pipeline.days import EVER
from pidgate.pipeline.engines import results_of
from pidgate.pipeline.failover.cascade import Heap
from pidgate.pipeline.failover.study import Options
from pidgate.pipeline.ingest.columns import CLOCKS, DEAD_LETTERS, GAPS
from pidgate.pipeline.passes import FAILOVER
from pidgate.pipeline.runs import Run
from pidgate.pipeline.schemas import schema_of
from pidgate.pipeline.tables import Tables
from tests.pipeline.made_events import write_events
from tests.support.offender_events import DAY_MS, END_MS, Scenes
from tests.support.who_events import HOUR_MS, START_MS, Client, Stream

ROGUE = "mallory"
HOSTILE = "<script>window.stolen=1</script><img src=x onerror=window.stolen=2>"
CRASHING = "carol"
QUIET = tuple(f"team-{n:02}" for n in range(1, 11))
USERS = (ROGUE, CRASHING, HOSTILE, *QUIET)
OWNER = "team-etl"
REFUSED_CLIENT = "etl-loader-7"
REFUSED = 40
"""Ids of the rogue that were refused on the last day, as of a rate in force until then."""


def scenes() -> Scenes:
    made = Scenes()
    made.steady(ROGUE, producers=9)
    for day in range(1, 8):
        batches = Client(user=ROGUE, client_id="etl-loader", address="10.4.7.19")
        made.per_batch(batches, 100, since_ms=START_MS + day * DAY_MS)
    for number in range(REFUSED):
        _refused(made.stream, Client(user=ROGUE, client_id=REFUSED_CLIENT, address="10.4.7.19"), number)
    for day in range(1, 8):
        crashing = Client(user=CRASHING, client_id="nightly", address="10.4.9.2")
        made.restart_loop(crashing, 30, since_ms=START_MS + day * DAY_MS)
    made.random_transactional_ids(Client(user=HOSTILE, client_id=HOSTILE, address=HOSTILE))
    for number, user in enumerate(QUIET):
        (made.rolling, made.steady)[number % 2](user)
    # Of one broker an id in four is handed out to somebody who passes the gateway by.
    made.stream.next_id += 1_500
    made.steady(QUIET[-1], producers=30)
    made.stream.make_bump(Client(user=HOSTILE), START_MS + 2 * DAY_MS, 5_000, epoch=32_766)
    _config(made.stream)
    return made


def _refused(stream: Stream, client: Client, number: int) -> None:
    at_ms = END_MS - 3 * HOUR_MS + number * 5_000
    producer_id = stream.allocate(client, at_ms)
    stream.decide(client, at_ms, producer_id, "refuse", "first_seen")


def _config(stream: Stream) -> None:
    stream.config(START_MS, None)
    _, kind, told = stream._made.pop()
    named = [
        QuotaInForce(user=ROGUE, rate_milli=1_000_000, owner=OWNER),
        QuotaInForce(user=HOSTILE, rate_milli=2_000_000, owner=HOSTILE),
    ]
    stream.make(kind, START_MS, None, **(told | {"quotas": named}))
    brokers = [BrokerPlace(node_id=number, host=f"10.0.0.{number}", port=9092) for number in (1, 2, 3)]
    orders = TopicPlaces(topic="orders", leaders=[1, 2, 3], replicas=[[1, 2], [2, 3], [3, 1]])
    stream.make(TopologyEvent, START_MS, None, brokers=brokers, topics=[orders])


def new_ids(events: list[Event]) -> Counter[str]:
    """Count the ids that each user brought and that were let in: of this history each is new once."""
    return Counter(
        event.user for event in events if isinstance(event, DecisionEvent) and event.decision == "admit"
    )


def burnt_ids(events: list[Event]) -> Mapping[str, int]:
    """Count those of the clients that harm, by user; without those of a client id whose other ids were refused: it is a
    place of its own, with too few ids for a story.
    """
    harmful = (ROGUE, "etl-loader"), (CRASHING, "nightly"), (HOSTILE, HOSTILE)
    return {
        user: sum(
            event.user == user
            and event.client_id.startswith(client)
            and event.client_id != REFUSED_CLIENT
            and event.decision == "admit"
            for event in events
            if isinstance(event, DecisionEvent)
        )
        for user, client in harmful
    }


def write_history(root: str, events: list[Event]) -> None:
    assert any(isinstance(event, ConfigEvent) for event in events)
    by_type = sorted(events, key=lambda event: event.type)
    for event_type, mine in groupby(by_type, key=lambda event: event.type):
        write_events(root, event_type, ({"schema_version": 1, **asdict(event)} for event in mine))


def study(root: Path) -> tuple[Tables, list[Event]]:
    """Write the history and run every job on it, each as its command does."""
    tables, events = Tables(None, str(root)), scenes().stream.events()
    write_history(tables.root, events)
    _beside(tables, "labels", schema_of("string: user pattern"), _labels())
    _beside(
        tables, "gaps", GAPS, [("gw-1", "run", 5, 21, 17, 0, "lost"), ("gw-1", "run", 40, 42, 3, 0, "lost")]
    )
    letters = [
        (reason, "", None, None, None, None, None, None, 0, at, 0) for at, reason in enumerate(_LETTERS)
    ]
    _beside(tables, "dead_letters", DEAD_LETTERS, letters)
    hours = [("gw-1", "run", START_MS, 2_400_020, 2_400_020, 9), ("gw-2", "run", None, None, 0, 9)]
    _beside(tables, "clocks", CLOCKS, hours)
    todo = {**jobs(), "failover": _failover}
    run_jobs(tables, todo, EVER, quiet([*todo]))
    return tables, events


def quiet(todo: Sequence[str]) -> Progress:
    return Progress(Console(quiet=True), todo)


def _failover(run: Run, _: Say) -> None:
    """Of brokers that are small enough for a few ids to fill them."""
    found = results_of(pass_over(run.tables, EVER, FAILOVER), run, EVER)
    answer_from(
        run, found, Options(Heap(heap_bytes=3_000, base_bytes=0, bytes_per_state=10, usable_share=1.0))
    )


_LETTERS = ("malformed", "late", "late")


def _labels() -> Iterator[tuple[str, str]]:
    yield ROGUE, Pattern.PRODUCER_PER_BATCH.value
    yield ROGUE, Pattern.STEADY.value
    yield CRASHING, Pattern.RESTART_LOOP.value
    yield HOSTILE, Pattern.RANDOM_TRANSACTIONAL_IDS.value
    # Not as it is, so that something is confused.
    for user in QUIET:
        yield user, Pattern.STEADY.value


def _beside(tables: Tables, name: str, schema: pa.Schema, rows: Iterable[tuple[object, ...]]) -> None:
    Path(tables.path(name)).mkdir()
    made = [dict(zip(schema.names, row, strict=True)) for row in rows]
    pq.write_table(pa.Table.from_pylist(made, schema), tables.path(name, "part.parquet"))
