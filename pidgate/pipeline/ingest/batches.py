"""One batch of the topic: offsets distributed to tasks, duplicates removed, committed as a whole.

Only the commit defines the next offsets. Committed records are never read again and all others are, whatever
the options.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pidgate.pipeline import arrow_tables
from pidgate.pipeline.errors import TO_GO_ON, TopicLostData
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest import seqs
from pidgate.pipeline.ingest.columns import Record
from pidgate.pipeline.ingest.commits import CommitLog, Position
from pidgate.pipeline.ingest.records import Span, spans
from pidgate.pipeline.ingest.staged import STAGED, Staging, arrivals_of
from pidgate.pipeline.ingest.topic import Offsets
from pidgate.pipeline.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Limits for accepted events, and the reaction to lost topic data.

    `gap_after_ms`: time that missing numbers may take to arrive; `forget_after_ms`: time that an incarnation
    is kept after its last event.
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
    """Offsets in the topic after this batch."""
    topic_ms: int = 0
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """Records of one partition in a batch."""

    first: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Batches:
    """Ingests the batches of one topic, one after the other."""

    tables: Tables
    log: CommitLog
    rules: Rules
    topic_id: str
    offsets_now: Callable[[], Offsets]
    read: Callable[[Sequence[Span]], Iterable[Record]]
    """Reader of one task's offsets; sent to the tasks."""

    def take_batch(self, wanted: Mapping[int, range]) -> Taken:
        """Commit the records of these offsets. Raises TopicLostData and the errors of `read`."""
        began_s = time.monotonic()
        position, files = self.log.position, self.tables.files
        staging = self.log.staging()
        arrived = self._staged(spans(wanted), staging)
        slices = slices_of(arrived)
        offsets = self.offsets_now()
        expected = position.expected(self.topic_id)
        losses = losses_between(expected, slices, offsets.first, self.topic_id)
        # Records removed before the first run are not a loss.
        if (
            promised := [one for one in losses if one.kafka_partition in expected]
        ) and self.rules.stop_at_loss:
            ranges = (
                f"partition {one.kafka_partition}: offsets {one.first_offset} to {one.last_offset}"
                for one in promised
            )
            raise TopicLostData(f"the topic lost data while it was read: {'; '.join(ranges)}. {TO_GO_ON}")
        intervals, twice = seqs.seen(numbers_seen(files, position), arrived)
        state = self.log.new_state()
        arrow_tables.write(files, f"{state}/intervals.parquet", intervals)
        if twice.any():
            take_out(files, staging, arrived["file"], twice)
        fresh = arrived.filter(pa.array(~twice))
        # A hole without retention is skipped. After retention the next batch reports the loss.
        ends = {
            p: one.stop for p, one in wanted.items() if p in slices or offsets.first.get(p, 0) <= one.start
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
            moves=self.log.moves([f"{staging}/{path}" for path in unique(fresh["file"])], staging, "batch"),
        )
        is_event = fresh["reason"].is_null()
        return Taken(
            batch=number,
            events=_counts(fresh.filter(is_event)["type"]),
            dead=_counts(fresh["reason"].drop_null()),
            duplicates=int(twice.sum()),
            losses=losses,
            behind=sum(max(0, end - next_offsets.get(p, offsets.first[p])) for p, end in offsets.end.items()),
            topic_ms=topic_ms,
            took_ms=round((time.monotonic() - began_s) * 1000),
        )

    def _staged(self, tasks: Sequence[Sequence[Span]], folder: str) -> pa.Table:
        """Run tasks that read these offsets and write files into a folder; return ARRIVALS."""
        place = self.tables.files.full(folder)
        staging = Staging(place, self.rules.late_after_ms, self.rules.ahead_ms)
        read = self.read

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch["id"].to_pylist():
                    yield staging.of(read(tasks[task]))

        return arrivals_of(
            self.tables.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, STAGED).toArrow()
        )


def numbers_seen(files: Files, position: Position) -> pa.Table:
    """Return columns.INTERVALS as of a commit."""
    return arrow_tables.read(
        files, files.data_files(position.state) if position.state else (), seqs.OF_INTERVALS
    )


def slices_of(arrived: pa.Table) -> dict[int, Slice]:
    """Return the offset range of a batch in each partition. Pure."""
    found = {}
    for partition in unique(arrived["kafka_partition"]):
        of_partition = arrived.filter(pc.equal(arrived["kafka_partition"], partition))
        times, offsets = of_partition["append_time_ms"], of_partition["kafka_offset"]
        first = pc.min(offsets)
        first_ms = times[pc.index(offsets, first).as_py()]
        found[partition] = Slice(first.as_py(), first_ms.as_py(), pc.max(times).as_py())
    return found


def losses_between(
    expected: Mapping[int, int], slices: Mapping[int, Slice], first_held: Mapping[int, int], topic_id: str
) -> tuple[seqs.Loss, ...]:
    """Return the offsets between the expected and the received ones, without holes not made by retention.

    Pure.
    """
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


def take_out(files: Files, folder: str, file_of: pa.ChunkedArray, twice: seqs.Flags) -> None:
    """Rewrite the staged files that contain duplicates. ARRIVALS are in the order of each file's rows."""
    for path in unique(file_of.filter(pa.array(twice))):
        place = f"{folder}/{path}"
        with files.input(place) as stream:
            table = pq.ParquetFile(stream).read()
        of_file = np.asarray(pc.equal(file_of, path))
        arrow_tables.write(files, place, table.filter(pa.array(~twice[of_file])))


def unique(column: pa.ChunkedArray) -> list[Any]:
    return sorted(column.unique().to_pylist())


def _counts(words: pa.ChunkedArray) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in words.value_counts().to_pylist()}
