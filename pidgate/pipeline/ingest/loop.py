"""The ingest loop: checks the topic and ingests batches until it is exhausted or stopped.

Batches are defined by the offsets in commits. A streaming query would add its checkpoint as a second source
of truth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from pidgate.pipeline.errors import BadOption, OtherWriter, raised_in_task
from pidgate.pipeline.ingest.batches import Account, Batches, How, Taken, settle
from pidgate.pipeline.ingest.commits import CommitLog, Position
from pidgate.pipeline.ingest.compaction import compact
from pidgate.pipeline.ingest.landed import Landed
from pidgate.pipeline.ingest.topic import Offsets, Topic
from pidgate.pipeline.tables import Tables

SETTLE_EVERY_S = 60
COMPACT_EVERY_S = 600


class Ingest:
    """One run. Of two runs on the same tables one ends with OtherWriter (commits.py)."""

    def __init__(
        self, tables: Tables, source: Topic | Landed, how: How, tell: Callable[[Taken], None]
    ) -> None:
        self._tables = tables
        self._source = source
        self._how = how
        self._tell = tell
        if not how.single_writer and not tables.files.can_create:
            raise BadOption(
                f"--tables {tables.root}: two ingests cannot be told apart here, because no file can be created only "
                "if it is absent. Make sure that one runs, and say so with `pidgate pipeline ingest --single-writer`."
            )
        self._log = CommitLog(tables.files, single_writer=how.single_writer)
        self._ending = threading.Event()

    def end(self) -> None:
        """Stop after the current batch. Safe in a signal handler."""
        self._ending.set()

    def run(self) -> Account:
        """Run until the source is exhausted or `end` is called.

        Raises TopicMissing, TopicLostData, OtherWriter.
        """
        try:
            return self._run()
        except Exception as error:
            # Its files may be gone for the same reason.
            if not isinstance(error, OtherWriter) and self._log.is_overtaken():
                raise self._log.overtaken() from error
            raise

    def _run(self) -> Account:
        self._log.finish()
        every_ms, most = self._how.every_ms, self._how.max_events_per_batch
        until: Mapping[str, int] | None = None
        settled = compacted = time.monotonic()
        while not self._ending.is_set():
            topic_id, offsets = self._describe()
            if every_ms is None and until is None:
                until = offsets.end
            wanted = self._source.share(waiting(self._log.position, topic_id, offsets, until), most)
            if wanted:
                self._take(topic_id, wanted)
            elif every_ms is None:
                break
            if time.monotonic() - settled > SETTLE_EVERY_S:
                self._settle()
                settled = time.monotonic()
            if time.monotonic() - compacted > COMPACT_EVERY_S:
                compact(self._tables, self._log)
                compacted = time.monotonic()
            if every_ms is not None and sum(map(len, wanted.values())) < most:
                self._ending.wait(every_ms / 1000)
        account = self._settle()
        if not self._ending.is_set():
            compact(self._tables, self._log)
        return account

    def _describe(self) -> tuple[str, Offsets]:
        """Return the source's identity and offsets. Raises TopicLostData if that ends ingest."""
        topic_id, offsets = self._source.describe()
        problem = self._source.loss(self._log.position, topic_id, offsets)
        if problem is not None and self._how.stop_at_loss:
            raise problem
        return topic_id, offsets

    def _take(self, topic_id: str, wanted: Mapping[str, range]) -> None:
        how, source = self._how, self._source
        batches = Batches(
            self._tables,
            self._log,
            how,
            topic_id,
            lambda: source.describe()[1],
            source.reader(stop_at_loss=how.stop_at_loss),
            source.tasks,
        )
        try:
            taken = batches.take_batch(wanted, now_ms())
        except Exception as error:
            # Raised in a task. If the topic lost data, its offsets give a better reason.
            if (raised := raised_in_task(error)) is None:
                raise
            self._describe()
            raise raised from error
        self._tell(taken)

    def _settle(self) -> Account:
        return settle(self._tables.files, self._log, self._how, now_ms())


def waiting(
    position: Position, topic_id: str, offsets: Offsets, until: Mapping[str, int] | None = None
) -> dict[str, range]:
    """Return the next offsets of each partition that has any, up to `until`. Pure.

    A partition that ends before the next offset was truncated, and new events may have reused offsets. It is
    read again from its first offset, and sequence numbers identify duplicates (seqs.py).
    """
    expected = position.expected(topic_id)
    found = {}
    for p, first in offsets.first.items():
        following = expected.get(p, 0)
        if following > offsets.end[p]:
            following = first
        end = offsets.end[p] if until is None else min(offsets.end[p], until.get(p, 0))
        if one := range(max(first, following), end):
            found[p] = one
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000
