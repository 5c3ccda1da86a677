"""A gateway's state directory: a snapshot and the journals since it are the whole state.

The previous snapshot and its journals are kept beside the newest, so that a damaged snapshot costs nothing. A full,
read-only or hanging disk is logged and counted, and is never in the way of traffic. Knows the files and when they are
written; the contents of a snapshot are in snapshot.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.disk_thread import DiskThread
from pidgate.gateway.logs import Event, guarded, logger
from pidgate.gateway.state.state_dir import files, snapshot
from pidgate.gateway.state.state_dir.frames import SnapshotUnreadable
from pidgate.gateway.state.state_dir.journal import BufferedJournal, JournalReader
from pidgate.gateway.state.state_dir.lock import DirectoryLock
from pidgate.gateway.state.state_dir.snapshot import About, Contents, SnapshotWriter
from pidgate.quota.user_state import BucketState, UserState

log = logger()

_T = TypeVar("_T")

JOURNAL_LIMIT_BYTES: Final = 64 * 2**20
"""About 100,000 decisions, which a restart reads in seconds."""

STEP_BYTES: Final = 2**20
STEP_USERS: Final = 64
STEP_S: Final = 0.002
"""A step of saving takes users from the event loop until one of the three is reached."""

RETRY_AFTER_S: Final = 10.0
CLOSING_S: Final = 10.0
"""Time for the last snapshot and the end of the journal, at a stop; beyond it the disk hangs."""
_REMEDY: Final = "make room on the disk, or make the directory writable for the gateway's user"


@dataclass(slots=True)
class Loaded:
    """Contents of the directory at a start. Without a snapshot (`written_wall_ms` None) the start is a cold one.

    `journal` iterates over events newer than the snapshot, oldest first, and blocks: use it `in_thread`.
    `is_whole`: all of the snapshot could be taken over. `set_aside`: (file, reason); damage to journals is in
    `journal.damaged` once it is read.
    """

    journal: JournalReader
    users: list[UserState] = field(default_factory=list)
    cluster_bucket: BucketState | None = None
    offsets: dict[int, int] = field(default_factory=dict)
    written_wall_ms: int | None = None
    grace_until_wall_ms: int | None = None
    set_aside: list[tuple[str, str]] = field(default_factory=list)
    is_whole: bool = True

    @contextlib.contextmanager
    def passing_over(self) -> Iterator[None]:
        """Pass over what is impossible in it, and log the first; the topic may have it, and is read from the start."""
        try:
            yield
        except Exception as error:
            if self.is_whole:
                log.exception(
                    Event.STATE_NOT_RESTORED, reason=f"of the snapshot: {error}", remedy="report it"
                )
            self.is_whole = False
            self.offsets.clear()


class StateDir:
    """`load` once, then `append` and `save` from one event loop, then `close`."""

    def __init__(self, path: str | Path, journal_limit_bytes: int = JOURNAL_LIMIT_BYTES) -> None:
        self.path = Path(path)
        self._lock = DirectoryLock(self.path)
        self._journal = BufferedJournal(self.path, journal_limit_bytes)
        self._thread = DiskThread("pidgate-state")
        self._is_usable = False
        self._is_saving = False
        self._generation = 0
        self._complete: int | None = None
        self._last_save_failed = False
        self._not_before_s = 0.0
        self.saves = 0
        self.save_failures = 0
        self.last_failure: OSError | None = None
        """Error of the last save; None when it succeeded."""
        self.snapshot_bytes = 0

    # Starting

    def in_thread(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Do what blocks in the directory's own thread, which holds up no end of the process."""
        return self._thread.do(work)

    def take(self) -> None:
        """Make the directory if need be, and lock it. Raises StateDirInUse; other failures are logged by `load`."""
        with contextlib.suppress(OSError):
            files.make_directory(self.path)
            self._lock.take()

    def load(self) -> Loaded:
        """Read the directory, taking it first if need be. Blocks: call `in_thread`. Raises only StateDirInUse."""
        started_s = monotonic_s()
        try:
            files.make_directory(self.path)
            if not self._lock.is_held:
                self._lock.take()
            found = files.listing(self.path)
        except OSError as error:
            cause, remedy = str(error), "let the gateway's user make and write the directory state_dir"
            log.error(Event.STATE_DIR_UNUSABLE, path=str(self.path), cause=cause, remedy=remedy)
            self._journal.refuse()
            return Loaded(JournalReader(self.path, []))
        for name in found.partial:
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
        loaded = self._newest_state(found)
        journals = [number for number in found.journals if number >= (self._complete or 0)]
        loaded.journal = JournalReader(self.path, journals)
        self._generation = found.newest_generation + 1
        self._journal.open(self._generation, self._total_bytes(journals))
        self._is_usable = True
        log.info(
            Event.STATE_LOADED,
            path=str(self.path),
            snapshot=None if self._complete is None else files.snapshot_name(self._complete),
            users=len(loaded.users),
            written_wall_ms=loaded.written_wall_ms,
            seconds=round(monotonic_s() - started_s, 3),
        )
        return loaded

    def _newest_state(self, found: files.Listing) -> Loaded:
        """Return the newest snapshot that can be read; set newer ones aside."""
        loaded = Loaded(JournalReader(self.path, []))
        for generation in reversed(found.snapshots):
            name = files.snapshot_name(generation)
            try:
                contents = snapshot.read(self.path / name)
            except (SnapshotUnreadable, OSError) as error:
                loaded.set_aside.append((name, str(error)))
                self._set_aside(name, str(error))
                continue
            self._complete = generation
            self._take(loaded, contents)
            break
        return loaded

    @staticmethod
    def _take(loaded: Loaded, contents: Contents) -> None:
        loaded.users = contents.users
        loaded.cluster_bucket = contents.cluster_bucket
        loaded.offsets = contents.about.offsets
        loaded.written_wall_ms = contents.about.written_wall_ms
        loaded.grace_until_wall_ms = contents.about.grace_until_wall_ms

    def _set_aside(self, name: str, reason: str) -> None:
        kept_as: str | None = None
        # A read-only directory: it stays where it is, and the next start logs the same.
        with contextlib.suppress(OSError):
            kept_as = files.set_aside(self.path, name)
        path = str(self.path / name)
        log.error(Event.STATE_FILE_SET_ASIDE, path=path, reason=reason, kept_as=kept_as)

    def _total_bytes(self, journals: list[int]) -> int:
        total = 0
        for generation in journals:
            with contextlib.suppress(OSError):
                total += (self.path / files.journal_name(generation)).stat().st_size
        return total

    # Keeping

    @property
    def dropped(self) -> int:
        """Events in no journal: the disk was full or hung for long, or the directory is unusable."""
        return self._journal.dropped

    @property
    def journal_bytes(self) -> int:
        """Bytes that a restart would read beside the newest snapshot."""
        return self._journal.size_bytes

    @property
    def needs_save(self) -> bool:
        """True when a save is due before the usual interval: none since the start, or the journal is long.

        False for a while after a failure.
        """
        if not self._is_usable or self._is_saving or monotonic_s() < self._not_before_s:
            return False
        return self.saves == 0 or self._journal.is_over_limit

    def append(self, value: bytes) -> None:
        """Add a decision event; on disk within 100 ms on a machine that keeps up, after `load` has ended.

        Never blocks, never raises.
        """
        self._journal.append(value)

    async def flush(self) -> bool:
        """Write what was appended before this call; False when that failed."""
        return await self._journal.flush()

    async def save(
        self,
        users: Iterable[UserState],
        *,
        written_wall_ms: int,
        cluster_bucket: BucketState | None = None,
        offsets: Mapping[int, int] | None = None,
        grace_until_wall_ms: int | None = None,
    ) -> bool:
        """Take a snapshot; False when it could not be written (logged, counted) or one is under way.

        `users` is iterated in short steps with the event loop free between them, after a new journal was begun: what
        happens meanwhile is in the snapshot, in the journal, or in both, and reading both is harmless.
        `written_wall_ms`: the wall time to which the users' ages refer. Raises what `users` raises; the snapshot
        before stays.
        """
        if not self._is_usable or self._is_saving:
            return False
        self._is_saving = True
        try:
            about = About(written_wall_ms, dict(offsets or {}), grace_until_wall_ms)
            return await self._save(iter(users), about, cluster_bucket)
        finally:
            self._is_saving = False

    async def _save(self, users: Iterator[UserState], about: About, cluster: BucketState | None) -> bool:
        started_s = monotonic_s()
        # After a failure the journal goes on: a snapshot may hold more than was there when its journal began.
        if not self._last_save_failed:
            self._generation += 1
            try:
                await self._journal.begin(self._generation)
            except OSError as error:
                self._note_failure(error)
                return False
        generation = self._generation
        self._last_save_failed = True
        writer = SnapshotWriter(self.path, generation)
        count = 0
        try:
            await self._thread.do(writer.begin, about, cluster)
            while step := _next_step(users):
                count += len(step)
                await self._thread.do(writer.add, step)
            size = await self._thread.do(writer.finish, self._complete or generation)
        except OSError as error:
            await self._thread.do(writer.abandon)
            self._note_failure(error)
            return False
        except BaseException:
            # The thread may still be writing: what clears up comes after it.
            self._thread.do(writer.abandon)
            raise
        self._note_success(generation, count, size, monotonic_s() - started_s)
        return True

    def _note_success(self, generation: int, users: int, size_bytes: int, seconds: float) -> None:
        self._complete = generation
        self._last_save_failed = False
        self._journal.covered()
        self.saves += 1
        self.last_failure = None
        self.snapshot_bytes = size_bytes
        path = str(self.path / files.snapshot_name(generation))
        log.debug(Event.STATE_SAVED, path=path, users=users, size_bytes=size_bytes, seconds=round(seconds, 3))

    def _note_failure(self, error: OSError) -> None:
        self.save_failures += 1
        self.last_failure = error
        self._not_before_s = monotonic_s() + RETRY_AFTER_S
        log.error(
            Event.STATE_NOT_SAVED,
            path=str(self.path),
            cause=str(error),
            failures=self.save_failures,
            remedy=_REMEDY,
        )

    async def close(self, last_save: Awaitable[object] | None = None) -> None:
        """Wait for the last snapshot, if one is to be taken, write what was appended, and unlock the directory.

        A disk that hangs is left alone after CLOSING_S, and the directory locked until the process ends, which does not
        wait for its threads.
        """
        try:
            async with asyncio.timeout(CLOSING_S):
                if last_save is not None:
                    await guarded("last snapshot", last_save)
                self._is_usable = False
                await self._journal.close()
                await self._thread.do(int)  # what was cancelled is still under way, or being cleared up
        except TimeoutError:
            self._is_usable = False
            self._journal.abandon()
            log.error(
                Event.STATE_NOT_SAVED,
                path=str(self.path),
                cause=f"the disk hangs: the stop did not wait for it beyond {CLOSING_S:g} s",
                failures=self.save_failures + 1,
                remedy="look at the disk; the next start reads what it holds",
            )
            return
        self._thread.shutdown(wait=False)
        self._lock.release()


def _next_step(users: Iterator[UserState]) -> list[UserState]:
    """Return the next users, few enough not to hold up the event loop; none at the end."""
    step: list[UserState] = []
    size_bytes = 0
    until_s = monotonic_s() + STEP_S
    for user in users:
        step.append(user)
        size_bytes += sum(len(layer.data) for layer in user.layers)
        if size_bytes >= STEP_BYTES or len(step) >= STEP_USERS or monotonic_s() >= until_s:
            break
    return step
