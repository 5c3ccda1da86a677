"""One batch of the topic: offsets distributed to tasks, duplicates removed, committed as a whole.

Only the commit defines the next offsets. Committed records are never read again and all others are, whatever
the options.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pidgate.pipeline.errors import TO_GO_ON, TopicLostData
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest import clocks, seqs
from pidgate.pipeline.ingest.columns import ARRIVALS, CLOCKS, GAPS, INTERVALS, Cause, Record
from pidgate.pipeline.ingest.commits import WORK, CommitLog, Position
from pidgate.pipeline.ingest.reading import LAST_MS
from pidgate.pipeline.ingest.staged import DAY_MS, Staging
from pidgate.pipeline.ingest.topic import Offsets, Span, spans
from pidgate.pipeline.schemas import folder_of
from pidgate.pipeline.tables import Tables
from pidgate.pipeline.tasks import in_tasks, unsealed

NUMBERS: Final = f"{WORK}/numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """Options of a run: its batches, limits for accepted events, and the reaction to lost topic data."""

    every_ms: int | None = None
    """None: ingest the present records, and stop."""
    max_events_per_batch: int = 200_000
    late_after_ms: int = 24 * 3_600_000
    ahead_ms: int = 3_600_000
    gap_after_ms: int = 15 * 60_000
    """Time that missing numbers may take to arrive."""
    stop_at_loss: bool = True
    single_writer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Outcome of one batch."""

    batch: int
    events: Mapping[str, int] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)
    duplicates: int = 0
    losses: tuple[seqs.Loss, ...] = ()
    cut: int = 0
    """Intervals of id_usage that were bounded."""
    behind: int = 0
    """Offsets in the topic, or landed files, after this batch."""
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Batches:
    """Ingests the batches of one topic, one after the other."""

    tables: Tables
    log: CommitLog
    how: How
    topic_id: str
    offsets_now: Callable[[], Offsets]
    read: Callable[[Sequence[Span]], Iterable[Record]]
    """Reader of one task's offsets; sent to the tasks."""
    tasks: Callable[[Mapping[str, range]], Sequence[Sequence[Span]]] = spans

    def take_batch(self, wanted: Mapping[str, range], now_ms: int) -> Taken:
        """Commit the records of these offsets. Raises TopicLostData, OtherWriter and the errors of `read`."""
        began_s = time.monotonic()
        position, files = self.log.position, self.tables.files
        number, staging = position.batch + 1, self.log.staging()
        arrived, cut = self._staged(self.tasks(wanted), staging, now_ms)
        offsets, expected = self.offsets_now(), position.expected(self.topic_id)
        losses = losses_between(expected, arrived, offsets.first, self.topic_id)
        if self.how.stop_at_loss:
            _check_losses(losses, expected)
        intervals, twice = seqs.seen(numbers_seen(files), arrived, number)
        known = files.read_table(files.data_files("clocks"), CLOCKS)
        measured, shift_ms = clocks.measured(known, arrived)
        paths = mended(files, staging, arrived, twice, shift_ms)
        next_offsets = _next_offsets(expected, wanted, arrived, offsets)
        after = Position(
            batch=number,
            topic_id=self.topic_id,
            next_offsets=next_offsets,
            losses=position.losses + losses,
        )
        moves = self.log.moves(dict.fromkeys(paths, ()), staging, "batch")
        moves += self.log.replacing(staging, {NUMBERS: intervals, "clocks": measured})
        self.log.commit(after, staging, moves)
        fresh = arrived.filter(pa.array(~twice))
        return Taken(
            batch=number,
            events=_counts(fresh.filter(fresh["reason"].is_null())["type"]),
            dead=_counts(fresh["reason"].drop_null()),
            duplicates=int(twice.sum()),
            losses=losses,
            cut=cut,
            behind=sum(max(0, end - next_offsets.get(p, offsets.first[p])) for p, end in offsets.end.items()),
            took_ms=round((time.monotonic() - began_s) * 1000),
        )

    def _staged(self, tasks: Sequence[Sequence[Span]], folder: str, now_ms: int) -> tuple[pa.Table, int]:
        """Run tasks that read these offsets and write files into a folder.

        Return ARRIVALS with `seen_ms`, a time not after now, and the number of cut intervals.
        """
        place = self.tables.files.full(folder)
        staging = Staging(place, self.how.late_after_ms, self.how.ahead_ms, now_ms)
        read = self.read
        answers = in_tasks(self.tables.spark, tasks, lambda task: staging.of(read(task)))
        found = {"arrivals": ARRIVALS.empty_table(), "cut": pa.table({"cut": [0]})}
        found |= unsealed(answers.toArrow().to_batches())
        arrived = found["arrivals"].combine_chunks()
        told_ms = pc.coalesce(arrived["append_time_ms"], arrived["wall_time_ms"], now_ms)
        arrived = arrived.append_column("seen_ms", pc.min_element_wise(told_ms, now_ms))
        return arrived, pc.sum(found["cut"]["cut"]).as_py()


def numbers_seen(files: Files) -> pa.Table:
    """Return columns.INTERVALS as of the last commit."""
    return files.read_table(files.data_files(NUMBERS), INTERVALS)


def losses_between(
    expected: Mapping[str, int], arrived: pa.Table, first_held: Mapping[str, int], topic_id: str
) -> tuple[seqs.Loss, ...]:
    """Return the offsets that retention deleted between the expected and the received ones. Pure."""
    place = ["kafka_partition", "kafka_offset"]
    in_order = arrived.filter(arrived["kafka_partition"].is_valid()).sort_by(
        [(name, "ascending") for name in place]
    )
    firsts = in_order.group_by("kafka_partition", use_threads=False).aggregate(
        [("kafka_offset", "first"), ("seen_ms", "first")]
    )
    losses = (
        seqs.Loss(
            kafka_partition=one["kafka_partition"],
            first_offset=expected.get(str(one["kafka_partition"]), 0),
            last_offset=min(one["kafka_offset_first"], first_held.get(str(one["kafka_partition"]), 0)) - 1,
            resumed_ms=one["seen_ms_first"],
            topic_id=topic_id,
        )
        for one in firsts.to_pylist()
    )
    return tuple(loss for loss in losses if loss.missing > 0)


def _check_losses(losses: Iterable[seqs.Loss], expected: Mapping[str, int]) -> None:
    """Raise TopicLostData for losses. Records removed before the first run are none."""
    ranges = [
        f"partition {one.kafka_partition}: offsets {one.first_offset} to {one.last_offset}"
        for one in losses
        if str(one.kafka_partition) in expected
    ]
    if ranges:
        raise TopicLostData(f"the topic lost data while it was read: {'; '.join(ranges)}. {TO_GO_ON}")


def _next_offsets(
    expected: Mapping[str, int], wanted: Mapping[str, range], arrived: pa.Table, offsets: Offsets
) -> dict[str, int]:
    """Return the offsets after a batch.

    Wanted offsets without a record are skipped, unless retention deleted them: then the next batch reports the loss.
    """
    came = set(map(str, unique(arrived["kafka_partition"].drop_null())))
    ends = {p: one.stop for p, one in wanted.items() if p in came or offsets.first.get(p, 0) <= one.start}
    return {p: end for p, end in {**expected, **ends}.items() if p in offsets.first}


def mended(
    files: Files, staging: str, arrived: pa.Table, twice: seqs.Flags, shift_ms: seqs.Numbers
) -> list[str]:
    """Return the staged files to commit: those with duplicates or wrong clocks are written again, corrected.

    ARRIVALS are in the order of each file's rows.
    """
    touched = twice | (shift_ms != 0)
    broken = unique(arrived["file"].filter(pa.array(touched)))
    whole = set(unique(arrived["file"])).difference(broken)
    paths = [f"{staging}/{path}" for path in sorted(whole)]
    for path in broken:
        of_file = np.asarray(pc.equal(arrived["file"], path))
        with files.input(f"{staging}/{path}") as stream:
            table = pq.ParquetFile(stream).read().filter(pa.array(~twice[of_file]))
        shift = pa.array(shift_ms[of_file & ~twice])
        for folder, rows in _by_folder(path, _shifted(table, shift)):
            place = f"{staging}/{folder}/{uuid.uuid4().hex}.parquet"
            files.write_table(place, rows)
            paths.append(place)
    return paths


def _shifted(table: pa.Table, shift_ms: pa.Array) -> pa.Table:
    """Add an offset to the times of each row that its gateway's clock told."""
    for name in {"wall_time_ms", "first_ms", "last_ms"}.intersection(table.column_names):
        told = pc.add(table[name], shift_ms)
        # Both clocks may be anything.
        right = pc.max_element_wise(pc.min_element_wise(told, LAST_MS), 0)
        table = table.set_column(table.column_names.index(name), table.schema.field(name), right)
    return table


def _by_folder(path: str, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of a staged file and their folders."""
    kind, event_type, *rest = path.split("/")
    if kind != "events":
        if table.num_rows:
            yield path.rpartition("/")[0], table
        return
    days = pc.divide(table["wall_time_ms"], DAY_MS)
    for day in unique(days):
        bucket = int(rest[1].removeprefix("bucket="))
        yield folder_of(event_type, day, bucket), table.filter(pc.equal(days, day))


def unique(column: pa.ChunkedArray) -> list[Any]:
    return sorted(column.unique().to_pylist())


def _counts(words: pa.ChunkedArray) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in words.value_counts().to_pylist()}


# Accounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Sums of the tables gaps/ and losses/, and the doubts in clocks/."""

    gaps: int
    missing: int
    missing_by_retention: int
    lost_offsets: int
    clocks: clocks.Doubts


def settle(files: Files, log: CommitLog, how: How, now_ms: int) -> Account:
    """Replace gaps/ and losses/, so that a late arrival closes its gap; gaps of dropped incarnations stay."""
    position = log.position
    before = files.read_table(files.data_files("gaps"), GAPS)
    gaps, losses, intervals = seqs.settled(
        numbers_seen(files), before, position.losses, now_ms - how.gap_after_ms
    )
    staging = log.staging()
    tables = {"gaps": gaps, "losses": losses, NUMBERS: intervals}
    log.commit(position, staging, log.replacing(staging, tables))
    missing = [(row["missing"], row["cause"]) for row in gaps.to_pylist()]
    return Account(
        gaps=len(missing),
        missing=sum(count for count, _ in missing),
        missing_by_retention=sum(count for count, cause in missing if cause == Cause.RETENTION),
        lost_offsets=sum(loss.missing for loss in position.losses),
        clocks=clocks.doubts(files.read_table(files.data_files("clocks"), CLOCKS)),
    )
