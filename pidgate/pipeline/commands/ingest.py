"""`pidgate pipeline ingest`: copies the events topic to tables."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from pidgate.client_settings import BadClientSettings, KafkaConfigOption, read_client_settings
from pidgate.pipeline import session
from pidgate.pipeline.commands import common
from pidgate.pipeline.errors import BadOption
from pidgate.pipeline.ingest.batches import Account, How, Taken
from pidgate.pipeline.ingest.landed import Landed
from pidgate.pipeline.ingest.loop import Ingest
from pidgate.pipeline.ingest.topic import Topic
from pidgate.pipeline.tables import Tables

EVENTS_TOPIC = "__pidgate_events"

TopicOption = Annotated[str, typer.Option("--topic", help="The gateways' `events.topic`.")]


def ingest(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    kafka: Annotated[str, typer.Option(help="Bootstrap servers of the cluster.")] = "localhost:9092",
    topic: TopicOption = EVENTS_TOPIC,
    kafka_config: KafkaConfigOption = None,
    landed: Annotated[
        str | None,
        typer.Option(
            "--landed", help="Instead of Kafka: a folder of files with events, JSON lines or Parquet."
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Interval of batches, until SIGTERM (default: present records only).")
    ] = None,
    single_writer: Annotated[
        bool, typer.Option("--single-writer", help="No other ingest runs; for stores that cannot check it.")
    ] = False,
    late_after: Annotated[
        str, typer.Option(help="Events appended this long after their creation are dead letters.")
    ] = "24h",
    on_data_loss: Annotated[
        Literal["stop", "go-on"], typer.Option(help="Reaction if the topic no longer has the next offsets.")
    ] = "stop",
    max_events_per_batch: Annotated[
        int, typer.Option(min=1, help="Limits a batch and its memory.")
    ] = 200_000,
    as_json: common.JsonOption = False,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Copy events from their topic to tables, each exactly once.

    Safe to kill and restart at any time; it resumes where it stopped. Invalid and late events go to
    dead_letters/ with a reason, missing sequence numbers to gaps/.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    how = How(
        every_ms=None if every is None else common.duration_ms(every, "--every"),
        max_events_per_batch=max_events_per_batch,
        late_after_ms=common.duration_ms(late_after, "--late-after"),
        stop_at_loss=on_data_loss == "stop",
        single_writer=single_writer,
    )
    source = Topic(kafka, topic, settings_of(kafka_config)) if landed is None else Landed(landed)
    at = Tables(session.spark_session("ingest", master=master, memory=memory), tables)
    total = take_events(at, source, how, console.print, ended_by=(signal.SIGTERM, signal.SIGINT))
    console.print("Next: pidgate pipeline run.")
    if as_json:
        print(json.dumps(total.as_dict()))


def settings_of(kafka_config: Path | None) -> Mapping[str, str]:
    """Read the file of `--kafka-config`. Raises BadOption."""
    try:
        return {} if kafka_config is None else read_client_settings(str(kafka_config))
    except BadClientSettings as error:
        raise BadOption(str(error)) from None


def take_events(
    tables: Tables,
    source: Topic | Landed,
    how: How,
    say: common.Say,
    *,
    ended_by: Sequence[signal.Signals] = (),
) -> Total:
    """Ingest until the source is exhausted or one of these signals arrives.

    Raises TopicMissing, TopicLostData, OtherWriter.
    """
    total = Total(say)
    run = Ingest(tables, source, how, total.add)
    for number in ended_by:
        signal.signal(number, lambda *_: run.end())
    say(_beginning(source, tables.root, how))
    total.end(run.run(), tables.root)
    return total


class Total:
    """Sums over all batches of this run, shown per batch and at the end."""

    def __init__(self, say: common.Say) -> None:
        self._say = say
        self._account: Account | None = None
        self.sums: Counter[str] = Counter()

    def add(self, taken: Taken) -> None:
        events, dead = sum(taken.events.values()), sum(taken.dead.values())
        # Spark's workers start in the first batch.
        if self.sums["batches"]:
            self.sums.update(warm_records=events + dead + taken.duplicates, warm_ms=taken.took_ms)
        self.sums.update(batches=1, events=events, dead=dead, duplicates=taken.duplicates)
        self.sums.update(cut=taken.cut)
        types = ", ".join(f"{count:,} {word}" for word, count in sorted(taken.events.items()))
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(taken.dead.items()))
        self._say(
            f"batch {taken.batch}: {events:,} events"
            + (f" ({types})" if types else "")
            + f"; {dead:,} dead letters"
            + (f" ({reasons})" if reasons else "")
            + f"; {taken.duplicates:,} duplicates; {taken.behind:,} behind; {taken.took_ms / 1000:.1f} s"
        )
        for loss in taken.losses:
            self._say(
                f"  partition {loss.kafka_partition}: the topic had deleted offsets {loss.first_offset} to "
                f"{loss.last_offset} before they were read"
            )

    def as_dict(self) -> dict[str, object]:
        told = ("batches", "events", "dead", "duplicates", "cut", "warm_records", "warm_ms")
        account = None if self._account is None else asdict(self._account)
        return {name: self.sums[name] for name in told} | {"account": account}

    def end(self, account: Account, tables: str) -> None:
        self._account = account
        self._say(
            f"{self.sums['events']:,} events in {self.sums['batches']} batches were ingested into {tables}/events; "
            f"{self.sums['dead']:,} records are in dead_letters/; {self.sums['duplicates']:,} were duplicates."
        )
        if account.missing:
            self._say(
                f"{account.missing:,} events are missing, in {account.gaps:,} gaps (gaps/); retention may explain "
                f"{account.missing_by_retention:,} of them."
            )
        if account.lost_offsets:
            self._say(f"{account.lost_offsets:,} records were deleted before they were read (losses/).")
        if cut := self.sums["cut"]:
            self._say(
                f"{cut:,} intervals of id_usage were longer than an hour or not within the hour before their "
                "event, and were cut: a clock was set meanwhile."
            )
        for claim, reason in account.clocks.sentences():
            self._say(f"{claim}. {reason}")


def _beginning(source: Topic | Landed, tables: str, how: How) -> str:
    until = (
        "the present records"
        if how.every_ms is None
        else f"a batch every {how.every_ms / 1000:g} s, until SIGTERM"
    )
    at = f"topic {source.name} at {source.bootstrap_servers}" if isinstance(source, Topic) else source.name
    return f"From {at} into {tables}: {until}."
