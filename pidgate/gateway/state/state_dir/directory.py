"""The state directory of a gateway: its latest snapshot, and the one before.

A save writes all users into a new file, or appends the changed ones to the newest file. The caller decides
when to save. A full, read-only or hanging disk is logged and counted, and never delays traffic.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.disk_thread import DiskThread
from pidgate.gateway.logs import Event, guarded, logger
from pidgate.gateway.state.state_dir import files, snapshot
from pidgate.gateway.state.state_dir.frames import Encoded
from pidgate.gateway.state.state_dir.lock import DirectoryLock
from pidgate.gateway.state.state_dir.snapshot import About, SavedUser, SnapshotFile, SnapshotUnreadable
from pidgate.quota.restoring import BucketState, UserState

log = logger()

_T = TypeVar("_T")

Export = Callable[[bool], Iterator[UserState | None]]
"""Yields all users. Called with True, yields the users changed since the last call, and None for each other
user."""

STEP_S: Final = 0.001
"""Time for encoding per turn of the event loop. 2 ms are promised, as a single user may take long."""
SMALLEST_REWRITE_BYTES: Final = 16 * 2**20
"""A file is rewritten when more than this, and more than its first save, has been appended to it."""

CLOSING_S: Final = 10.0
"""Time for the last snapshot at a stop; a longer wait means that the disk hangs."""
_REMEDY: Final = "make room on the disk, or make the directory writable for the gateway's user"


@dataclass(slots=True)
class Loaded:
    """Contents of the directory at a start. Without a snapshot (`about` None) the start is cold.

    `is_whole`: the whole snapshot could be used. `set_aside`: (file, reason).
    """

    about: About | None = None
    users: list[SavedUser] = field(default_factory=list)
    set_aside: list[tuple[str, str]] = field(default_factory=list)
    is_whole: bool = True

    @property
    def written_wall_ms(self) -> int | None:
        return None if self.about is None else self.about.written_wall_ms

    @property
    def grace_until_wall_ms(self) -> int:
        """End of the grace active when the snapshot was taken; 0 without one."""
        return (self.about and self.about.grace_until_wall_ms) or 0

    @property
    def offsets(self) -> dict[int, int]:
        """Offsets to continue at in the events topic; none (its beginning) if part of the snapshot was
        invalid.
        """
        return self.about.offsets if self.about is not None and self.is_whole else {}

    @property
    def cluster_bucket(self) -> BucketState | None:
        return None if self.about is None else self.about.cluster_bucket

    @contextlib.contextmanager
    def passing_over(self) -> Iterator[None]:
        """Skip impossible contents and log the first. The topic may have them, and is read from the start."""
        try:
            yield
        except Exception as error:
            if self.is_whole:
                log.exception(
                    Event.STATE_NOT_RESTORED, reason=f"of the snapshot: {error}", remedy="report it"
                )
            self.is_whole = False


class StateDir:
    """Call `load` once, then `save` from one event loop, then `close`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = DirectoryLock(self.path)
        self._thread = DiskThread("pidgate-state")
        self._is_usable = False
        self._is_saving = False
        self._generation = 0
        self._complete: int | None = None
        self._file: SnapshotFile | None = None
        """The newest file. None before the first save and after a failure: all users are written then."""
        self._first_save_bytes = 0
        self.saves = 0
        self.save_failures = 0
        self.last_failure: OSError | None = None
        """Error of the last save; None when it succeeded."""
        self.snapshot_bytes = 0

    # Starting

    def in_thread(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run blocking work in the directory's own thread. Process exit does not wait for it."""
        return self._thread.do(work)

    def lock(self) -> None:
        """Create the directory if missing, and lock it. Raises StateDirInUse; `load` logs other failures."""
        with contextlib.suppress(OSError):
            files.make_directory(self.path)
            self._lock.take()

    def load(self) -> Loaded:
        """Read the directory, and lock it if `lock` did not.

        Blocks: call `in_thread`. Raises only StateDirInUse.
        """
        started_s = monotonic_s()
        try:
            files.make_directory(self.path)
            if not self._lock.is_held:
                self._lock.take()
            found = files.listing(self.path)
        except OSError as error:
            cause, remedy = str(error), "let the gateway's user make and write the directory state_dir"
            log.error(Event.STATE_DIR_UNUSABLE, path=str(self.path), cause=cause, remedy=remedy)
            return Loaded()
        for name in found.partial:
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
        loaded, torn_bytes = self._load_newest(found)
        self._generation = found.newest_generation
        self._is_usable = True
        log.info(
            Event.STATE_LOADED,
            path=str(self.path),
            snapshot=None if self._complete is None else files.snapshot_name(self._complete),
            users=len(loaded.users),
            written_wall_ms=loaded.written_wall_ms,
            torn_bytes=torn_bytes,
            seconds=round(monotonic_s() - started_s, 3),
        )
        return loaded

    def _load_newest(self, found: files.Listing) -> tuple[Loaded, int]:
        """Return the newest readable snapshot, and the bytes of its torn save. Damaged files are set aside."""
        loaded = Loaded()
        for generation in reversed(found.snapshots):
            name = files.snapshot_name(generation)
            try:
                contents = snapshot.read(self.path / name)
            except (SnapshotUnreadable, OSError) as error:
                loaded.set_aside.append((name, str(error)))
                self._set_aside(name, str(error))
                continue
            if contents.damage:
                loaded.set_aside.append((name, contents.damage))
                self._set_aside(name, f"{contents.damage}; the part before it is used")
            self._complete = generation
            loaded.about, loaded.users = contents.about, contents.users
            return loaded, contents.torn_bytes
        return loaded, 0

    def _set_aside(self, name: str, reason: str) -> None:
        kept_as: str | None = None
        # In a read-only directory the file stays in place, and the next start logs it again.
        with contextlib.suppress(OSError):
            kept_as = files.set_aside(self.path, name)
        path = str(self.path / name)
        log.error(Event.STATE_FILE_SET_ASIDE, path=path, reason=reason, kept_as=kept_as)

    # Saving

    async def save(self, export: Export, about: About) -> bool:
        """Save the changed users, or all. False: it failed (logged, counted), or another save is running.

        Users are encoded in short steps, between which the event loop is free. A change made during the save
        is in this save or the next. Raises exceptions of `export`; earlier saves stay valid.
        """
        if not self._is_usable or self._is_saving:
            return False
        self._is_saving = True
        file, self._file = self._file, None
        started_s = monotonic_s()
        try:
            file, users = await self._write(file, export, about)
        except OSError as error:
            self._log_failure(error)
            return False
        finally:
            self._is_saving = False
        self._file = file
        self.saves += 1
        self.last_failure = None
        self.snapshot_bytes = file.size_bytes
        path = str(self.path / files.snapshot_name(self._generation))
        seconds = round(monotonic_s() - started_s, 3)
        log.debug(Event.STATE_SAVED, path=path, users=users, size_bytes=file.size_bytes, seconds=seconds)
        return True

    async def _write(
        self, file: SnapshotFile | None, export: Export, about: About
    ) -> tuple[SnapshotFile, int]:
        """Write a save to the file, or to a new one; return the file and the number of users written."""
        do = self._thread.do
        if file is not None and file.size_bytes - self._first_save_bytes > self._appended_limit_bytes:
            self._close_later(file)
            file = None
        is_new = file is None
        if file is None:
            self._generation += 1
            file = SnapshotFile(self.path, self._generation)
        count = 0
        try:
            if is_new:
                await do(file.create)
            await do(file.begin_save, about)
            users = export(not is_new)
            while (step := _next_step(users)) is not None:
                count += len(step)
                await do(file.add_users, step)
            await do(file.end_save)
            if is_new:
                await do(file.put_in_place, self._complete or self._generation)
                self._complete = self._generation
                self._first_save_bytes = file.size_bytes
        except BaseException:
            self._close_later(file)
            raise
        return file, count

    @property
    def _appended_limit_bytes(self) -> int:
        return max(self._first_save_bytes, SMALLEST_REWRITE_BYTES)

    def _close_later(self, file: SnapshotFile) -> None:
        """Close the file after the thread's pending work on it."""
        self._thread.submit(file.close)

    def _log_failure(self, error: OSError) -> None:
        self.save_failures += 1
        self.last_failure = error
        log.error(
            Event.STATE_NOT_SAVED,
            path=str(self.path),
            cause=str(error),
            failures=self.save_failures,
            remedy=_REMEDY,
        )

    async def close(self, last_save: Awaitable[object] | None = None) -> None:
        """Wait for the last snapshot, if any, and unlock the directory.

        A hanging disk is abandoned after CLOSING_S. The directory then stays locked until the process ends,
        which does not wait for its threads.
        """
        try:
            async with asyncio.timeout(CLOSING_S):
                if last_save is not None:
                    await guarded("last snapshot", last_save)
                self._is_usable = False
                if self._file is not None:
                    self._close_later(self._file)
                await self._thread.do(int)  # a cancelled save is still running, or being cleaned up
        except TimeoutError:
            self._is_usable = False
            log.error(
                Event.STATE_NOT_SAVED,
                path=str(self.path),
                cause=f"the disk hangs: the stop did not wait for it beyond {CLOSING_S:g} s",
                failures=self.save_failures + 1,
                remedy="look at the disk; the next start reads the last complete save",
            )
            return
        self._thread.shutdown(wait=False)
        self._lock.release()


def _next_step(users: Iterator[UserState | None]) -> list[Encoded] | None:
    step: list[Encoded] = []
    until_s = monotonic_s() + STEP_S
    for user in users:
        if user is not None:
            step.append(snapshot.encode_user(user))
        if monotonic_s() >= until_s:
            return step
    return step or None
