"""One batch of the topic: read, deduplicated, staged, and committed as a whole.

The commit says which offsets come next, and nothing else does: what was committed is not read again, and what was not
is, whatever options it is run with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.errors import TopicLostData
from pidgate.pipeline.ingest import reading, seqs
from pidgate.pipeline.ingest.columns import DEAD_LETTERS, INTERVALS, RECORDS
from pidgate.pipeline.ingest.commits import CommitLog, Position
from pidgate.pipeline.ingest.topic import Offsets
from pidgate.pipeline.schemas import table_schema
from pidgate.pipeline.tables import Tables

WRITERS = 2
"""Types of events that are written at once; each is one task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Limits of what is taken for an event, and the reaction when the topic lost data.

    `gap_after_ms`: time that numbers may take to come; `forget_after_ms`: time for which an incarnation is known after
    its last event.
    """

    late_after_ms: int = 24 * 3_600_000
    ahead_ms: int = 3_600_000
    stop_at_loss: bool = True
    gap_after_ms: int = 15 * 60_000
    forget_after_ms: int = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Outcome of one batch."""

    batch: int
    events: Mapping[str, int] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)
    duplicates: int = 0
    losses: tuple[seqs.Loss, ...] = ()
    behind: int = 0
    """Offsets that the topic holds beyond this batch."""
    topic_ms: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """Records of one partition in a batch."""

    first: int
    last: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Batches:
    """Ingest of the batches of one topic, one after the other."""

    tables: Tables
    log: CommitLog
    rules: Rules
    topic_id: str
    offsets_now: Callable[[], Offsets]

    def take(self, offsets: Mapping[int, range], records: DataFrame) -> Taken:
        """Commit the records of these offsets. Raises TopicLostData."""
        with read_batch(records, self.rules) as (arrivals, slices):
            return self._committed(arrivals, offsets, slices)

    def _committed(self, arrivals: DataFrame, taken: Mapping[int, range], slices: dict[int, Slice]) -> Taken:
        position = self.log.position
        offsets = self.offsets_now()
        expected = position.expected(self.topic_id)
        losses = losses_between(expected, slices, offsets.first, self.topic_id)
        # What was removed before the first run was promised to nobody.
        if (
            promised := [one for one in losses if one.kafka_partition in expected]
        ) and self.rules.stop_at_loss:
            ranges = (
                f"partition {one.kafka_partition}: offsets {one.first_offset} to {one.last_offset}"
                for one in promised
            )
            raise TopicLostData(
                f"the topic lost data while it was read: {'; '.join(ranges)}. The batch was not taken. To go on and "
                "have the loss recorded in losses/: --on-data-loss go-on."
            )
        staging, state = self.log.staging(), self.log.new_state()
        marks = seqs.marked(numbers_seen(self.tables, position), seqs.numbered(arrivals)).persist()
        try:
            seqs.merged(marks).coalesce(1).write.parquet(self.tables.files.full(state))
            twice = seqs.duplicates(marks)
            repeated = twice.count()
            place = ["kafka_partition", "kafka_offset"]
            fresh = arrivals.join(twice, place, "left_anti") if repeated else arrivals
            counts = _counts(fresh)
            self._stage(fresh, counts, staging)
        finally:
            marks.unpersist()
        # No record, and none removed: a hole, to be passed. Where some were removed, the next batch has the loss.
        ends = {
            p: one.stop for p, one in taken.items() if p in slices or offsets.first.get(p, 0) <= one.start
        }
        next_offsets = {**expected, **ends}
        topic_ms = max([position.topic_ms, *(one.last_ms for one in slices.values())])
        number = position.batch + 1
        self.log.commit(
            replace(
                position,
                batch=number,
                topic_id=self.topic_id,
                next_offsets=next_offsets,
                topic_ms=topic_ms,
                state=state,
                losses=position.losses + losses,
            ),
            moves=self.log.moves(staging, "batch"),
        )
        return Taken(
            batch=number,
            events={word: count for (word, reason), count in counts.items() if reason is None},
            dead={reason: count for (_, reason), count in counts.items() if reason is not None},
            duplicates=repeated,
            losses=losses,
            behind=sum(max(0, end - next_offsets.get(p, offsets.first[p])) for p, end in offsets.end.items()),
            topic_ms=topic_ms,
        )

    def _stage(self, fresh: DataFrame, counts: Mapping[tuple[str, str | None], int], staging: str) -> None:
        """One file for each type and hour, and one of dead letters for each day."""
        writes: list[tuple[DataFrame, str, tuple[str, ...]]] = [
            (events_of(fresh, word), f"{staging}/events/{word}", ("day", "hour"))
            for word in sorted({word for word, reason in counts if reason is None})
        ]
        if any(reason is not None for _, reason in counts):
            writes.append((dead_letters_of(fresh), f"{staging}/dead_letters", ("day",)))

        def write(rows: DataFrame, folder: str, partitions: tuple[str, ...]) -> None:
            one_task = rows.coalesce(1).sortWithinPartitions(*partitions)
            one_task.write.partitionBy(*partitions).parquet(self.tables.files.full(folder))

        with ThreadPoolExecutor(WRITERS) as pool:
            for done in [pool.submit(write, *one) for one in writes]:
                done.result()


def numbers_seen(tables: Tables, position: Position) -> DataFrame:
    """Return columns.INTERVALS as of a commit."""
    if not position.state:
        return tables.spark.createDataFrame([], INTERVALS)
    return tables.spark.read.schema(INTERVALS).parquet(tables.files.full(position.state))


def losses_between(
    expected: Mapping[int, int], slices: Mapping[int, Slice], first_held: Mapping[int, int], topic_id: str
) -> tuple[seqs.Loss, ...]:
    """Return the offsets between those expected and those that came; holes not made by retention are none. Pure."""
    found = []
    for partition, one in sorted(slices.items()):
        following = expected.get(partition, 0)
        last = min(one.first, first_held.get(partition, 0)) - 1
        if last >= following:
            found.append(
                seqs.Loss(
                    kafka_partition=partition,
                    first_offset=following,
                    last_offset=last,
                    resumed_ms=one.first_ms,
                    topic_id=topic_id,
                )
            )
    return tuple(found)


def records_of(kafka: DataFrame) -> DataFrame:
    """Spark's columns of a topic in those of columns.RECORDS."""
    return kafka.select(
        "value",
        f.col("partition").alias("kafka_partition"),
        f.col("offset").alias("kafka_offset"),
        f.unix_millis("timestamp").alias("append_time_ms"),
    )


@contextmanager
def read_batch(records: DataFrame, rules: Rules) -> Iterator[tuple[DataFrame, dict[int, Slice]]]:
    """All records of a batch, each as the event it is or with a reason; and where they lay.

    Held in memory, or on disk, meanwhile.
    """
    read = reading.read(records).persist()
    try:
        yield reading.judged_by_time(read, rules.late_after_ms, rules.ahead_ms), _slices(read)
    finally:
        read.unpersist()


def _slices(read: DataFrame) -> dict[int, Slice]:
    rows = (
        read.groupBy("kafka_partition")
        .agg(
            f.min("kafka_offset"),
            f.max("kafka_offset"),
            f.min_by("append_time_ms", "kafka_offset"),
            f.max("append_time_ms"),
        )
        .collect()
    )
    return {row[0]: Slice(*row[1:]) for row in rows}


def events_of(arrivals: DataFrame, word: str) -> DataFrame:
    """The rows of one table of events, with its folders."""
    made = f.timestamp_millis(f.col("wall_time_ms"))
    columns = [
        f.col(name) if name in RECORDS.names else f.col(f"{word}.{name}").alias(name)
        for name in table_schema(word).names
    ]
    return arrivals.where((f.col("type") == word) & f.col("reason").isNull()).select(
        *columns, f.date_format(made, "yyyy-MM-dd").alias("day"), f.date_format(made, "HH").alias("hour")
    )


def dead_letters_of(arrivals: DataFrame) -> DataFrame:
    """The rows of dead_letters, by the day of their append."""
    appended = f.timestamp_millis(f.col("append_time_ms"))
    return arrivals.where(f.col("reason").isNotNull()).select(
        *DEAD_LETTERS.names, f.date_format(appended, "yyyy-MM-dd").alias("day")
    )


def _counts(arrivals: DataFrame) -> dict[tuple[str, str | None], int]:
    """Count by type of the events, and by reason of those that are none: their own `type` may be anything."""
    word = f.when(f.col("reason").isNull(), f.col("type")).otherwise("").alias("type")
    rows = arrivals.groupBy(word, "reason").count().collect()
    return {(row["type"], row["reason"]): row["count"] for row in rows}
