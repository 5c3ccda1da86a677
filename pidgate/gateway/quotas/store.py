"""The quotas of one gateway: the file's quotas, overlaid with the changes made at run time.

Callers know administration.py. topic_store.py carries changes through the fleet; the state directory keeps them
without a topic.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, guarded, logger
from pidgate.gateway.quotas import administration
from pidgate.gateway.quotas.administration import InForce, Kept, NotAllowed, OnChanged
from pidgate.gateway.quotas.announcing import log_changes, log_not_kept
from pidgate.gateway.quotas.change_log import (
    ChangeLog,
    LogEntry,
    RecordUnreadable,
    Restored,
    encode,
    from_json,
    key_of,
    to_json,
)
from pidgate.gateway.quotas.origins import provenance_in_force
from pidgate.gateway.quotas.topic_store import Outgoing, TopicStore
from pidgate.gateway.state.state_dir.kept_file import KeptFile
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.changes import Change, Command, applied, deciding, has_ended, next_end

log = logger()

PATIENCE_S: Final = 3.0
"""Longest wait for a change to be kept."""
PATIENCE_WITHOUT_TOPIC_S: Final = 0.5
"""The same while the topic is known to be unavailable."""
STOP_WITHIN_S: Final = 2.0
"""Longest wait of a stop for the topic to take all changes."""
CHANGES_FILE: Final = "runtime-quotas.json"
"""In the state directory."""
CHECK_EVERY_S: Final = 10.0
"""Expiry times are checked at least this often, because the wall clock may jump."""
COMMANDS_REMEMBERED: Final = 10_000

WallMs = Callable[[], int]
_Stamped = TypeVar("_Stamped", Change, Command)
Written = asyncio.Future[str | None]
"""Future that ends with None when the topic has a record, or with the reason why it never will."""


def kept_changes(directory: str | Path, contents: Callable[[], list[Restored]]) -> KeptFile[Restored]:
    """Return the file of the changes known to one gateway, for a start without the topic."""
    return KeptFile(directory, CHANGES_FILE, contents, _restored_to_json, _restored_from_json)


def _restored_to_json(one: Restored) -> dict[str, Any]:
    return {**to_json(one.entry), "is_pending": one.is_pending}


def _restored_from_json(fields: Any) -> Restored:
    try:
        return Restored(from_json(fields), fields["is_pending"] is True)
    except RecordUnreadable as error:
        raise ValueError(str(error)) from error


class QuotaObserver(Protocol):
    """Observer of quota changes."""

    def quotas_changed(self, in_force: InForce) -> None:
        """Handle other quotas in force: after a change here or elsewhere, an expiry, or another file."""

    def command_given(self, command: Command) -> None:
        """Apply this command now."""

    def topic_id_learnt(self, topic_id: bytes) -> None:
        """Handle the id of the quotas topic, 16 bytes."""


class QuotaStore:
    """The single point where quotas are changed: `change`, `command` and `file_changed`, from `start` to `stop`.

    `observer` is notified in the event loop, from `open` on. `run`: a name unique among all stores, past ones
    included.
    """

    def __init__(
        self, settings: Settings, observer: QuotaObserver, kafka: OwnClient, run: str, wall_ms: WallMs
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._wall_ms = wall_ms
        self._settings = settings
        self._in_file = settings.to_quotas()
        self._observer = observer
        self._log = ChangeLog(run, has_topic=settings.events.enabled)
        self._topic: TopicStore | None = None
        if settings.events.enabled:
            self._topic = TopicStore.from_settings(settings, kafka, observer.topic_id_learnt)
        self._dir = kept_changes(settings.state_dir, self._log.to_keep) if settings.state_dir else None
        self._waiters: dict[bytes, list[tuple[int, Written]]] = {}
        """By key: seq of an entry being written, and the future that waits for it."""
        self._background: list[asyncio.Task[None]] = []
        self._administering: set[asyncio.Task[None]] = set()
        self._began_s = self._loop.time()
        self._unreadable_logged = 0
        self._executed: OrderedDict[tuple[object, ...], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._in_force = self._compute(version=1)

    @property
    def in_force(self) -> InForce:
        return self._in_force

    @property
    def is_read(self) -> bool:
        """Return whether the topic was read to its end once, or there is none."""
        return self._log.is_read

    @property
    def last_failure(self) -> str:
        """Cause of the topic's failure; empty while it works or without a topic."""
        return self._topic.last_failure if self._topic is not None else ""

    @property
    def unwritten(self) -> int:
        """Number of records not acknowledged by the topic."""
        return self._topic.unwritten if self._topic is not None else 0

    @property
    def unreadable_records(self) -> int:
        """Number of unreadable records of the topic."""
        return self._log.unreadable

    # ---- start and end ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Apply the changes in the state directory, before serving. The caller holds its lock."""
        if self._dir is not None:
            self._log.restore(self._dir.read())
            self._update(logs=False)

    def start(self) -> None:
        """Follow the topic in the background."""
        self._began_s = self._loop.time()
        self._check_time()
        if self._topic is not None:
            tasks = (self._topic.follow(self._apply_records, self._finish_reading), self._topic.write_all())
            self._background += [self._loop.create_task(guarded("quotas topic", task)) for task in tasks]

    async def stop(self) -> None:
        """Write pending changes within a short time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._topic is not None and self._background:
            await self._topic.flushed(STOP_WITHIN_S)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._dir is not None:
            await self._dir.close()

    # ---- changes and commands --------------------------------------------------------------------------

    def check(self, change: Change) -> None:
        """Check a change. Raises NotAllowed when it may not be made."""
        allow = self._settings.quotas.runtime_changes != "refused"
        administration.check(change, self._in_file, self._wall_ms(), allow=allow, file_wins=self.file_wins)

    def preview(self, changes: Sequence[Change]) -> InForce:
        """Return the quotas that these changes would put in force. Raises NotAllowed."""
        for change in changes:
            self.check(change)
        return self._compute(self._in_force.version, changes)

    async def change(self, changes: Sequence[Change]) -> Kept:
        """Put changes in force at once; return where they are kept, after PATIENCE_S at most.

        Raises NotAllowed; then none of them is in force.
        """
        for change in changes:
            self.check(change)
        entries = [self._log.append(self._stamped(change)) for change in changes]
        self._update()
        return await self._keep(entries)

    async def command(self, command: Command) -> Kept:
        """Execute a command now; return TOPIC if all gateways that follow the topic execute it, else MEMORY."""
        command = self._stamped(command)
        self._execute(command)
        if self._topic is None:
            return Kept.MEMORY
        outgoing, written = self._write(self._log.append(command))
        if not await self._why_not_written([written]):
            return Kept.TOPIC
        # A command is meant for now; a late execution would be a surprise.
        self._topic.withdraw(outgoing)
        return Kept.MEMORY

    def file_changed(self, settings: Settings) -> None:
        """Apply the quotas of another file. Changes overruled by it are kept, but not in force."""
        self._settings = settings
        self._in_file = settings.to_quotas()
        self._update()

    def administer(self, changes: Sequence[Change], only_check: bool, on_changed: OnChanged) -> None:
        """Make allowed changes, or only check them, for a connection (an `Administer`)."""
        task = self._loop.create_task(self._administer(changes, only_check, on_changed))
        self._administering.add(task)
        task.add_done_callback(self._administering.discard)

    async def _administer(self, changes: Sequence[Change], only_check: bool, on_changed: OnChanged) -> None:
        problems: list[str | None] = [self._problem(change) for change in changes]
        allowed = [change for change, problem in zip(changes, problems, strict=True) if problem is None]
        kept = None
        if allowed and not only_check:
            try:
                kept = await self.change(allowed)
            except NotAllowed as error:
                problems = [problem or str(error) for problem in problems]
            except Exception as error:
                log.exception(Event.UNEXPECTED_ERROR, reason=f"changing quotas: {error}")
                on_changed(None, None)
                return
        on_changed(problems, kept)

    def _problem(self, change: Change) -> str | None:
        try:
            self.check(change)
        except NotAllowed as error:
            return str(error)
        return None

    def _stamped(self, what: _Stamped) -> _Stamped:
        return replace(
            what,
            set_wall_ms=what.set_wall_ms or self._wall_ms(),
            set_through=what.set_through or self._settings.gateway_id,
        )

    async def _keep(self, entries: Sequence[LogEntry]) -> Kept:
        writes = [self._write(entry)[1] for entry in entries] if self._topic is not None else []
        if self._dir is not None:
            self._dir.changed()
        why_not = await self._why_not_written(writes) if writes else ""
        if writes and not why_not:
            return Kept.TOPIC
        kept = Kept.STATE_DIR if self._dir is not None and await self._is_on_disk(self._dir) else Kept.MEMORY
        if self._dir is not None and self._topic is None and kept is Kept.MEMORY:
            why_not = self._dir.last_failure or "the disk is slow"
        if why_not:
            for entry in entries:
                assert isinstance(entry.what, Change)
                log_not_kept(entry.what, kept, why_not)
        return kept

    async def _is_on_disk(self, directory: KeptFile[Restored]) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                return await directory.kept()
        return False

    async def _why_not_written(self, writes: Sequence[Written]) -> str:
        """Return why the topic lacks some of them after the wait; empty when it has all."""
        patience_s = PATIENCE_WITHOUT_TOPIC_S if self.last_failure else PATIENCE_S
        done, waiting = await asyncio.wait(writes, timeout=patience_s)
        for one in waiting:
            one.cancel()
        if waiting:
            return self.last_failure or "the quotas topic has not acknowledged it yet"
        return next((problem for problem in (one.result() for one in done) if problem is not None), "")

    # ---- the topic -------------------------------------------------------------------------------------

    def _write(self, entry: LogEntry) -> tuple[Outgoing, Written]:
        """Write an entry to the topic. A later entry of the same key ends its future too."""
        assert self._topic is not None
        key = key_of(entry.what)
        written: Written = self._loop.create_future()
        self._waiters.setdefault(key, []).append((entry.seq, written))
        outgoing = Outgoing(key, encode(entry), lambda problem: self._write_ended(key, entry, problem))
        self._topic.write(outgoing)
        return outgoing, written

    def _write_ended(self, key: bytes, entry: LogEntry, problem: str | None) -> None:
        waiters = self._waiters.pop(key, [])
        listening = [written for seq, written in waiters if seq <= entry.seq and not written.done()]
        if later := [waiter for waiter in waiters if waiter[0] > entry.seq]:
            self._waiters[key] = later
        for written in listening:
            written.set_result(problem)
        if problem is None:
            self._log.acknowledge(entry)
            if self._dir is not None:
                self._dir.changed()
        elif isinstance(entry.what, Change) and not listening:
            log_not_kept(entry.what, Kept.MEMORY if self._dir is None else Kept.STATE_DIR, problem)

    def _apply_records(self, records: Sequence[EventRecord]) -> None:
        """Apply records of the topic, in order."""
        for record in records:
            entry = self._log.apply(record.key, record.value)
            if entry is None:
                continue
            if isinstance(entry.what, Change):
                self._write(entry)
            elif self._log.is_own(entry):
                # Every gateway that follows has executed it; the record is not needed any more. It may be read before
                # its acknowledgement arrives.
                self._write_ended(record.key, entry, None)
                self._write_tombstone(record.key)
            else:
                self._execute(entry.what)
        self._log_unreadable()
        if self.is_read:
            self._update()
            if self._dir is not None:
                self._dir.changed()

    def _write_tombstone(self, key: bytes) -> None:
        assert self._topic is not None
        if key not in self._waiters:
            self._topic.write(Outgoing(key, None, lambda _problem: None))

    def _finish_reading(self) -> None:
        assert self._topic is not None
        for entry in self._log.finish_reading():
            self._write(entry)
        self._update(logs=False)
        if self._dir is not None:
            self._dir.changed()
        log.info(
            Event.QUOTAS_TOPIC_READ,
            topic=self._topic.topic.name,
            changes=len(self._in_force.changes),
            unreadable=self._log.unreadable,
            waited_ms=round((self._loop.time() - self._began_s) * 1000),
        )

    def _log_unreadable(self) -> None:
        if self._topic is not None and self._log.unreadable > self._unreadable_logged:
            self._unreadable_logged = self._log.unreadable
            log.error(
                Event.QUOTAS_TOPIC_UNREADABLE_RECORDS,
                topic=self._topic.topic.name,
                unreadable=self._log.unreadable,
                reason=self._log.last_unreadable,
            )

    def _execute(self, command: Command) -> None:
        """Execute a command once, however often it is read."""
        same = (command.type, command.user, command.producer_id, command.set_through, command.set_wall_ms)
        if same in self._executed:
            return
        self._executed[same] = None
        while len(self._executed) > COMMANDS_REMEMBERED:
            self._executed.popitem(last=False)
        log.info(
            Event.QUOTA_COMMAND,
            deed=command.type.value,
            user=command.user,
            producer_id=command.producer_id,
            set_by=command.set_by,
            set_through=command.set_through,
        )
        with self._guarded("executing a command"):
            self._observer.command_given(command)

    # ---- quotas in force -------------------------------------------------------------------------------

    @property
    def file_wins(self) -> bool:
        """Return whether a value in the file stands above a change made at run time."""
        return self._settings.quotas.runtime_changes == "file_wins"

    def _compute(self, version: int, more: Sequence[Change] = ()) -> InForce:
        now_ms = self._wall_ms()
        known = {**self._log.changes(), **{change.target: change for change in more}}
        changes = [change for change in known.values() if not has_ended(change, now_ms)]
        found = deciding(self._in_file, changes, file_wins=self.file_wins, wall_ms=now_ms)
        return InForce(
            quotas=applied(self._in_file, found),
            provenance=provenance_in_force(self._settings, found.values()),
            in_file=self._in_file,
            changes=tuple(changes),
            version=version,
        )

    def _update(self, *, logs: bool = True) -> None:
        """Recompute the quotas in force, and publish them when they have changed."""
        before = self._in_force
        after = self._compute(before.version)
        if after != before:
            self._in_force = after = replace(after, version=before.version + 1)
            if logs:
                log_changes(before, after, self._log.latest, self._wall_ms())
            with self._guarded("putting quotas in force"):
                self._observer.quotas_changed(after)
        if self._timer is not None:
            self._schedule_check()

    def _check_time(self) -> None:
        """End expired temporary changes, and retry a failed write to disk."""
        self._schedule_check()
        self._update()
        if self._dir is not None and self._dir.is_behind:
            self._dir.try_again()

    def _schedule_check(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self._wall_ms()
        end_ms = next_end(self._in_force.changes, now_ms)
        delay_s = CHECK_EVERY_S if end_ms is None else min(CHECK_EVERY_S, (end_ms - now_ms) / 1000 + 0.001)
        self._timer = self._loop.call_later(delay_s, self._check_time)

    @contextlib.contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            log.exception(Event.UNEXPECTED_ERROR, reason=f"{doing}: {error}")
