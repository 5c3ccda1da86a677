"""The streaming query: from the first look at the topic to a clean end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pidgate.pipeline.errors import BadOption, PipelineError, TopicLostData
from pidgate.pipeline.ingest.accounts import Account, settle
from pidgate.pipeline.ingest.batches import Batches, Rules, Taken, records_of
from pidgate.pipeline.ingest.commits import WORK, CommitLog
from pidgate.pipeline.ingest.compaction import closed_folders, compact
from pidgate.pipeline.ingest.topic import Offsets, Topic, lost_data
from pidgate.pipeline.tables import Tables

CHECKPOINT = f"{WORK}/checkpoint"
LOOK_EVERY_S = 0.5
SETTLE_EVERY_S = 60
COMPACT_EVERY_S = 600
COMPACT_FROM_FILES = 8
"""A late event does not have a whole hour written again."""
COMPACT_DAYS = 3
"""So far back a stream looks by itself; `--compact` looks everywhere."""
_LOCK_PATIENCE_S = 20
_ABOUT = f"{WORK}/about.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """`every_ms` None: take what is there, and end."""

    every_ms: int | None = None
    max_events_per_batch: int = 200_000
    rules: Rules = field(default_factory=Rules)


class Ingest:
    """One run. Nobody else may write into the same tables meanwhile (see `only_writer`)."""

    def __init__(self, tables: Tables, topic: Topic, how: How, tell: Callable[[Taken], None]) -> None:
        self._tables = tables
        self._topic = topic
        self._how = how
        self._tell = tell
        self._files = tables.files
        self._log = CommitLog(self._files)
        self._ending = threading.Event()
        # Held by a batch, and by whatever else commits: the commits are one line.
        self._turn = threading.Lock()
        self._failure: Exception | None = None

    def end(self) -> None:
        """End after the batch that runs. May be called by a signal handler."""
        self._ending.set()

    def run(self) -> Account:
        """Run until everything is taken, or `end`. Raises TopicMissing, TopicLostData, TableUnreadable."""
        self._log.finish()
        topic_id, partitions = self._topic.identity()
        offsets = self._topic.offsets(partitions)
        if problem := lost_data(self._topic.name, self._log.position, topic_id, offsets):
            if self._how.rules.stop_at_loss:
                raise problem
            self._begin_anew_if_needed(topic_id, offsets)
        self._batches = Batches(
            self._tables,
            self._log,
            self._how.rules,
            topic_id,
            lambda: self._topic.offsets(self._topic.identity()[1]),
        )
        query = self._start(topic_id, offsets)
        try:
            self._watch(query)
        # Spark wraps what went wrong, in a batch as in the connector, into exceptions of many kinds.
        except Exception as error:
            raise self._explained(error) from error
        finally:
            query.stop()
        with self._turn:
            account = self._settle()
            if not self._ending.is_set():
                self._compact()
        return account

    def _start(self, topic_id: str, offsets: Offsets) -> StreamingQuery:
        kafka = (
            self._tables.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._topic.bootstrap_servers)
            .option("subscribe", self._topic.name)
            .option("startingOffsets", self._starting_offsets(topic_id, offsets))
            .option("failOnDataLoss", str(self._how.rules.stop_at_loss).lower())
            .option("maxOffsetsPerTrigger", self._how.max_events_per_batch)
            .option("groupIdPrefix", "pidgate-ingest")
            .options(**{f"kafka.{name}": value for name, value in self._topic.settings.items()})
            .load()
        )
        stream = records_of(kafka).writeStream.foreachBatch(self._take).queryName("pidgate ingest")
        stream = stream.option("checkpointLocation", self._files.full(CHECKPOINT))
        every_ms = self._how.every_ms
        if every_ms is None:
            return stream.trigger(availableNow=True).start()
        return stream.trigger(processingTime=f"{every_ms} milliseconds").start()

    def _starting_offsets(self, topic_id: str, offsets: Offsets) -> str:
        """Return the offsets to go on from, which Spark uses without a checkpoint: nothing is read twice."""
        position = self._log.position
        if position.topic_id != topic_id:
            return "earliest"
        following = {
            str(p): max(first, min(position.next_offsets.get(p, 0), offsets.end[p]))
            for p, first in offsets.first.items()
        }
        return json.dumps({self._topic.name: following})

    def _begin_anew_if_needed(self, topic_id: str, offsets: Offsets) -> None:
        """The checkpoint's offsets mean nothing in another topic, nor behind the end of a shortened one."""
        position = self._log.position
        shortened = any(end > offsets.end.get(p, 0) for p, end in position.next_offsets.items())
        if shortened or position.topic_id != topic_id:
            self._files.remove(CHECKPOINT)

    def _take(self, records: DataFrame, number: int) -> None:
        with self._turn:
            try:
                query = json.loads(self._files.read(f"{CHECKPOINT}/metadata"))["id"]
                taken = self._batches.take(query, number, records)
            except Exception as error:
                self._failure = error
                raise
        if taken is not None:
            self._tell(taken)

    def _watch(self, query: StreamingQuery) -> None:
        settled = compacted = time.monotonic()
        while not query.awaitTermination(timeout=LOOK_EVERY_S):  # type: ignore[arg-type]
            if self._ending.is_set():
                # Whoever has the turn is done when it is ours; what Spark did not note of it, the commits know.
                with self._turn:
                    query.stop()
                return
            now = time.monotonic()
            if now - settled > SETTLE_EVERY_S:
                settled = now
                with self._turn:
                    self._settle()
            if now - compacted > COMPACT_EVERY_S:
                compacted = now
                with self._turn:
                    self._compact()

    def _settle(self) -> Account:
        return settle(self._tables, self._log, self._how.rules, now_ms())

    def _compact(self) -> None:
        for folder in closed_folders(self._files, now_ms(), COMPACT_FROM_FILES, COMPACT_DAYS):
            if self._ending.is_set():
                return
            compact(self._tables, self._log, folder)

    def _explained(self, error: Exception) -> Exception:
        if self._failure is not None:
            return self._failure
        if isinstance(error, PipelineError):
            return error
        topic_id, partitions = self._topic.identity()
        problem = lost_data(self._topic.name, self._log.position, topic_id, self._topic.offsets(partitions))
        if problem is None and "KAFKA_DATA_LOSS" in str(error):
            return TopicLostData(f"topic {self._topic.name!r} lost data: {error}. See --on-data-loss.")
        return problem or error


def compact_all(tables: Tables, tell: Callable[[str, int], None]) -> int:
    """Every closed folder that has more than one file; how many folders."""
    log = CommitLog(tables.files)
    log.finish()
    folders = closed_folders(tables.files, now_ms())
    for folder in folders:
        tell(folder, compact(tables, log, folder))
    return len(folders)


@contextmanager
def only_writer(tables: Tables) -> Iterator[None]:
    """Keep a second ingest away. Raises BadOption.

    The lock is the JVM's, so that after a kill it lasts just as long as the JVM, which still may write, and no
    longer. Elsewhere than on a local disk it is for the operator to start one only.
    """
    files = tables.files
    if not files.is_local:
        yield
        return
    # The lock's folder must be there; and whoever finds it should know what it is.
    if not files.exists(_ABOUT):
        files.write(_ABOUT, "What `pidgate pipeline ingest` must remember. Back it up with the tables.\n")
    jvm = cast(Any, tables.spark._jvm)
    path = jvm.java.net.URI(files.full(f"{WORK}/lock")).getPath()
    opened = jvm.java.io.RandomAccessFile(path, "rw")
    try:
        give_up_s = time.monotonic() + _LOCK_PATIENCE_S
        while opened.getChannel().tryLock() is None:
            if time.monotonic() > give_up_s:
                raise BadOption(
                    f"another ingest writes into {tables.root}. End it first; there can be one only."
                )
            time.sleep(LOOK_EVERY_S)
        yield
    finally:
        opened.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
