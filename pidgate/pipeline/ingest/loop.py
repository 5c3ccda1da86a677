"""The ingest loop: checks the topic and ingests batches until it is exhausted or stopped.

Batches are defined by the offsets in commits. A streaming query would add its checkpoint as a second source
of truth.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pidgate.pipeline.errors import BadOption, raised_in_task
from pidgate.pipeline.ingest.accounts import Account, settle
from pidgate.pipeline.ingest.batches import Batches, Rules, Taken
from pidgate.pipeline.ingest.commits import WORK, CommitLog, Position
from pidgate.pipeline.ingest.compaction import closed_folders, compact
from pidgate.pipeline.ingest.records import Source
from pidgate.pipeline.ingest.topic import Offsets, Topic, lost_data
from pidgate.pipeline.tables import Tables

SETTLE_EVERY_S = 60
COMPACT_EVERY_S = 600
COMPACT_FROM_FILES = 8
"""A late event alone does not cause a rewrite of a whole hour."""
COMPACT_DAYS = 3
"""Days that the loop compacts by itself; `--compact` covers all."""
_LOCK_PATIENCE_S = 20
_LOOK_EVERY_S = 0.5
_LOCK = f"{WORK}/lock"
_ABOUT = f"{WORK}/about.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """Options of a run. `every_ms` None: ingest the present records, and stop."""

    every_ms: int | None = None
    max_events_per_batch: int = 200_000
    rules: Rules = field(default_factory=Rules)


class Ingest:
    """One run. No other process may write the same tables at the same time (see `only_writer`)."""

    def __init__(self, tables: Tables, topic: Topic, how: How, tell: Callable[[Taken], None]) -> None:
        self._tables = tables
        self._topic = topic
        self._how = how
        self._tell = tell
        self._files = tables.files
        self._log = CommitLog(self._files)
        self._ending = threading.Event()

    def end(self) -> None:
        """Stop after the current batch. Safe in a signal handler."""
        self._ending.set()

    def run(self) -> Account:
        """Run until the topic is exhausted or `end` is called. Raises TopicMissing, TopicLostData."""
        self._log.finish()
        every_ms, most = self._how.every_ms, self._how.max_events_per_batch
        until: Mapping[int, int] | None = None
        settled = compacted = time.monotonic()
        while not self._ending.is_set():
            topic_id, offsets = self._request_offsets()
            if every_ms is None and until is None:
                until = offsets.end
            wanted = next_offsets(self._log.position, topic_id, offsets, most, until)
            if wanted:
                self._take(topic_id, wanted)
            elif every_ms is None:
                break
            if time.monotonic() - settled > SETTLE_EVERY_S:
                self._settle()
                settled = time.monotonic()
            if time.monotonic() - compacted > COMPACT_EVERY_S:
                self._compact()
                compacted = time.monotonic()
            if every_ms is not None and sum(map(len, wanted.values())) < most:
                self._ending.wait(every_ms / 1000)
        account = self._settle()
        if not self._ending.is_set():
            self._compact()
        return account

    def _request_offsets(self) -> tuple[str, Offsets]:
        """Return the topic's id and offsets. Raises TopicLostData if that ends ingest."""
        topic_id, partitions = self._topic.identity()
        offsets = self._topic.offsets(partitions)
        problem = lost_data(self._topic.name, self._log.position, topic_id, offsets)
        if problem is not None and self._how.rules.stop_at_loss:
            raise problem
        return topic_id, offsets

    def _take(self, topic_id: str, wanted: Mapping[int, range]) -> None:
        source = Source(
            self._topic.bootstrap_servers,
            self._topic.name,
            self._topic.settings,
            stop_at_loss=self._how.rules.stop_at_loss,
        )
        batches = Batches(
            self._tables,
            self._log,
            self._how.rules,
            topic_id,
            lambda: self._topic.offsets(self._topic.identity()[1]),
            source.records,
        )
        try:
            taken = batches.take_batch(wanted)
        except Exception as error:
            # Raised in a task. If the topic lost data, its offsets give a better reason.
            if (raised := raised_in_task(error)) is None:
                raise
            self._request_offsets()
            raise raised from error
        self._tell(taken)

    def _settle(self) -> Account:
        return settle(self._files, self._log, self._how.rules, now_ms())

    def _compact(self) -> None:
        for folder in closed_folders(self._files, now_ms(), COMPACT_FROM_FILES, COMPACT_DAYS):
            if self._ending.is_set():
                return
            compact(self._tables, self._log, folder)


def next_offsets(
    position: Position, topic_id: str, offsets: Offsets, most: int, until: Mapping[int, int] | None = None
) -> dict[int, range]:
    """Return the next batch's offsets, each partition's share of `most`, up to `until`. Pure.

    A partition that ends before the next offset was truncated, and new events may have reused offsets. It is
    read again from its first offset, and sequence numbers identify duplicates (seqs.py).
    """
    expected = position.expected(topic_id)
    waiting = {}
    for p, first in offsets.first.items():
        following = expected.get(p, 0)
        if following > offsets.end[p]:
            following = first
        end = offsets.end[p] if until is None else min(offsets.end[p], until.get(p, 0))
        if one := range(max(first, following), end):
            waiting[p] = one
    total = sum(map(len, waiting.values()))
    if total <= most:
        return waiting
    return {p: one[: max(1, len(one) * most // total)] for p, one in waiting.items()}


def compact_all(tables: Tables, tell: Callable[[str, int], None]) -> int:
    """Compact every closed folder with more than one file; return their number."""
    log = CommitLog(tables.files)
    log.finish()
    folders = closed_folders(tables.files, now_ms())
    for folder in folders:
        tell(folder, compact(tables, log, folder))
    return len(folders)


@contextmanager
def only_writer(tables: Tables) -> Iterator[None]:
    """Lock out a second ingest. Raises BadOption.

    Only this process commits, so the lock is enough: a killed run's Spark may still write, but no commit
    names its files. On other file systems than a local disk the operator must start only one.
    """
    files = tables.files
    if not files.is_local:
        yield
        return
    # The lock needs its folder, and the folder explains itself.
    if not files.exists(_ABOUT):
        files.write(_ABOUT, "State of `pidgate pipeline ingest`. Back it up with the tables.\n")
    with files.local_path(_LOCK).open("w") as opened:
        give_up_s = time.monotonic() + _LOCK_PATIENCE_S
        while not _locked(opened.fileno()):
            if time.monotonic() > give_up_s:
                raise BadOption(f"another ingest is running on {tables.root}. Stop it first.")
            time.sleep(_LOOK_EVERY_S)
        yield


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def now_ms() -> int:
    return time.time_ns() // 1_000_000
