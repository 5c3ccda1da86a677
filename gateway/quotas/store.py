"""A gateway's quotas: what the file says with what was changed at run time, and everything that becomes of a change.

One per gateway: in the only process, or in the holder of the state. Who asks knows gateway/quotas/administration.py;
how changes travel is in topic_store.py, where they outlive a process without a topic in dir_store.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from pidgate.gateway import clock
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.quotas import rules
from pidgate.gateway.quotas.administration import InForce, Kept
from pidgate.gateway.quotas.announcing import announce, say_not_kept
from pidgate.gateway.quotas.change_log import Ledger
from pidgate.gateway.quotas.dir_store import DirStore
from pidgate.gateway.quotas.provenance import provenance_in_force
from pidgate.gateway.quotas.records import LogEntry, encode, key_of
from pidgate.gateway.quotas.topic_store import Outgoing, TopicStore
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.changes import Change, Command
from pidgate.quota.in_force import applied, deciding, has_ended, next_end

log = logger()

PATIENCE_S: Final = 3.0
"""How long a change waits to be kept before its teller is answered."""
PATIENCE_WITHOUT_TOPIC_S: Final = 0.5
"""The same while the topic is known not to work."""
LAST_WORDS_S: Final = 2.0
"""How long a stop waits for the topic to take what it has not got."""
LOOK_EVERY_S: Final = 10.0
"""The wall clock may jump: ends are looked for at least so often."""
DEEDS_REMEMBERED: Final = 10_000

WallMs = Callable[[], int]
Written = asyncio.Future[str | None]
"""Ends with None when the topic has taken a record, or with the reason why it never will."""


class QuotaObserver(Protocol):
    """Who is notified of what becomes of the quotas."""

    def quotas_changed(self, in_force: InForce) -> None:
        """Other quotas are in force: by a change here or elsewhere, the end of a temporary one, another file."""

    def command_given(self, command: Command) -> None:
        """Apply this command now."""

    def topic_id_learnt(self, topic_id: bytes) -> None:
        """The quotas topic has this id, 16 bytes."""


class QuotaStore:
    """`open`, `start`, `stop`; then `change`, `command` and `file_changed` at any time. An Administration.

    `observer` is notified in the event loop, from `open` on.
    """

    def __init__(
        self,
        settings: Settings,
        observer: QuotaObserver,
        *,
        wall_ms: WallMs = clock.wall_ms,
        run: str = "",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._wall_ms = wall_ms
        self._settings = settings
        self._in_file = settings.to_quotas()
        self._observer = observer
        self._ledger = Ledger(run or secrets.token_hex(6), has_topic=settings.events.enabled)
        self._topic: TopicStore | None = None
        if settings.events.enabled:
            self._topic = TopicStore.from_settings(settings, observer.topic_id_learnt)
        self._dir = DirStore(settings.state_dir, self._ledger.to_keep) if settings.state_dir else None
        self._waiters: dict[bytes, list[tuple[int, Written]]] = {}
        """By key: who waits for which telling to be written."""
        self._background: list[asyncio.Task[None]] = []
        self._began_s = self._loop.time()
        self._unreadable_said = 0
        self._done: OrderedDict[tuple[object, ...], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._in_force = self._reckoned(version=1)

    @property
    def in_force(self) -> InForce:
        return self._in_force

    @property
    def is_read(self) -> bool:
        """The topic was read to its end once, or there is none."""
        return self._ledger.is_read

    @property
    def last_failure(self) -> str:
        """Why the topic cannot be read or written; empty while it can, and when there is none."""
        return self._topic.last_failure if self._topic is not None else ""

    @property
    def unwritten(self) -> int:
        """Records that the topic has not got yet."""
        return self._topic.unwritten if self._topic is not None else 0

    @property
    def unreadable_records(self) -> int:
        return self._ledger.unreadable

    # ---- start and end ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Read the state directory's file, before anything is served; what it holds is in force when this returns.

        Never raises for what is wrong with it: that is set aside, and logged. Whoever calls has locked the directory.
        """
        if self._dir is not None:
            self._ledger.restore(self._dir.read())
            self._settle(announces=False)

    def start(self) -> None:
        """Follow the topic, in the background."""
        self._began_s = self._loop.time()
        self._look()
        if self._topic is not None:
            works = (self._topic.follow(self._heard, self._read_to_the_end), self._topic.write_all())
            self._background += [self._loop.create_task(self._going_on(work)) for work in works]

    async def stop(self) -> None:
        """Keep what can be kept within a moment."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._topic is not None and self._background:
            await self._topic.flushed(LAST_WORDS_S)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._dir is not None:
            await self._dir.kept()

    # ---- being told ------------------------------------------------------------------------------------

    def check(self, change: Change) -> None:
        """Raises NotAllowed."""
        rules.check(change, self._settings.quotas.runtime_changes, self._in_file, self._wall_ms())

    async def change(self, changes: Sequence[Change]) -> Kept:
        """In force here at once; returns when kept, or after PATIENCE_S with where they are kept by then.

        Raises NotAllowed; then none of them is in force.
        """
        for change in changes:
            self.check(change)
        told = [self._ledger.tell(self._stamped(change)) for change in changes]
        self._settle()
        return await self._keep(told)

    async def command(self, command: Command) -> Kept:
        """Done here at once. TOPIC: every gateway that follows the topic now does it; MEMORY: nobody else does."""
        command = replace(
            command,
            set_wall_ms=command.set_wall_ms or self._wall_ms(),
            set_through=command.set_through or self._settings.gateway_id,
        )
        self._do(command)
        if self._topic is None:
            return Kept.MEMORY
        told = self._ledger.tell(command)
        outgoing, written = self._write(told)
        if not await self._why_not_written([written]):
            return Kept.TOPIC
        # Later it would surprise: a deed is for now.
        self._topic.withdraw(outgoing)
        return Kept.MEMORY

    def file_changed(self, settings: Settings) -> None:
        """Another file holds. Changes that it overrules now are kept, but not in force."""
        self._settings = settings
        self._in_file = settings.to_quotas()
        self._settle()

    def _stamped(self, change: Change) -> Change:
        return replace(
            change,
            set_wall_ms=change.set_wall_ms or self._wall_ms(),
            set_through=change.set_through or self._settings.gateway_id,
        )

    async def _keep(self, told: Sequence[LogEntry]) -> Kept:
        """Have it written wherever it can be; returns when that is known."""
        writes = [self._write(one)[1] for one in told] if self._topic is not None else []
        if self._dir is not None:
            self._dir.changed()
        why_not = await self._why_not_written(writes) if writes else ""
        if writes and not why_not:
            return Kept.TOPIC
        kept = Kept.STATE_DIR if self._dir is not None and await self._is_on_disk(self._dir) else Kept.MEMORY
        if self._dir is not None and self._topic is None and kept is Kept.MEMORY:
            why_not = self._dir.last_failure or "the disk is slow"
        if why_not:
            for one in told:
                assert isinstance(one.what, Change)
                say_not_kept(one.what, kept, why_not)
        return kept

    async def _is_on_disk(self, directory: DirStore) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                return await directory.kept()
        return False

    async def _why_not_written(self, writes: Sequence[Written]) -> str:
        """Empty when the topic took them all within the time that there is."""
        patience_s = PATIENCE_WITHOUT_TOPIC_S if self.last_failure else PATIENCE_S
        done, waiting = await asyncio.wait(writes, timeout=patience_s)
        for one in waiting:
            one.cancel()
        if waiting:
            return self.last_failure or "the quotas topic has not acknowledged it yet"
        return next((problem for problem in (one.result() for one in done) if problem is not None), "")

    # ---- the topic -------------------------------------------------------------------------------------

    def _write(self, told: LogEntry) -> tuple[Outgoing, Written]:
        """What became of it is known when the future ends; a later one of its key speaks for it."""
        assert self._topic is not None
        key = key_of(told.what)
        written: Written = self._loop.create_future()
        self._waiters.setdefault(key, []).append((told.seq, written))
        outgoing = Outgoing(key, encode(told), lambda problem: self._write_ended(key, told, problem))
        self._topic.write(outgoing)
        return outgoing, written

    def _write_ended(self, key: bytes, told: LogEntry, problem: str | None) -> None:
        waiters = self._waiters.pop(key, [])
        listening = [written for seq, written in waiters if seq <= told.seq and not written.done()]
        if later := [waiter for waiter in waiters if waiter[0] > told.seq]:
            self._waiters[key] = later
        for written in listening:
            written.set_result(problem)
        if problem is None:
            self._ledger.acknowledged(told)
            if self._dir is not None:
                self._dir.changed()
        elif isinstance(told.what, Change) and not listening:
            say_not_kept(told.what, Kept.MEMORY if self._dir is None else Kept.STATE_DIR, problem)

    def _heard(self, records: Sequence[EventRecord]) -> None:
        """What the topic says, in its order."""
        for record in records:
            told = self._ledger.heard(record.key, record.value)
            if told is None:
                continue
            if isinstance(told.what, Change):
                self._write(told)
            elif self._ledger.is_own(told):
                # Done everywhere that follows; nobody needs it any more.
                self._forget(record.key)
            else:
                self._do(told.what)
        self._say_unreadable()
        if self.is_read:
            self._settle()
            if self._dir is not None:
                self._dir.changed()

    def _forget(self, key: bytes) -> None:
        assert self._topic is not None
        if key not in self._waiters:
            self._topic.write(Outgoing(key, None, lambda _problem: None))

    def _read_to_the_end(self) -> None:
        assert self._topic is not None
        for told in self._ledger.caught_up():
            self._write(told)
        self._settle(announces=False)
        if self._dir is not None:
            self._dir.changed()
        log.info(
            Event.QUOTAS_TOPIC_READ,
            topic=self._topic.topic.name,
            changes=len(self._in_force.changes),
            unreadable=self._ledger.unreadable,
            waited_ms=round((self._loop.time() - self._began_s) * 1000),
        )

    def _say_unreadable(self) -> None:
        if self._topic is not None and self._ledger.unreadable > self._unreadable_said:
            self._unreadable_said = self._ledger.unreadable
            log.error(
                Event.QUOTAS_TOPIC_UNREADABLE_RECORDS,
                topic=self._topic.topic.name,
                unreadable=self._ledger.unreadable,
                reason=self._ledger.last_unreadable,
            )

    async def _going_on(self, work: Coroutine[Any, Any, None]) -> None:
        """What ends by itself is wrong, and must not end unheard."""
        try:
            await work
        except Exception as error:
            log.exception(Event.UNEXPECTED_ERROR, reason=f"the quotas topic: {error}")

    # ---- deeds -----------------------------------------------------------------------------------------

    def _do(self, command: Command) -> None:
        """Once, however often it is heard."""
        same = (
            command.deed,
            command.user,
            command.producer_id,
            command.set_through,
            command.set_wall_ms,
        )
        if same in self._done:
            return
        self._done[same] = None
        while len(self._done) > DEEDS_REMEMBERED:
            self._done.popitem(last=False)
        log.info(
            Event.QUOTA_COMMAND,
            deed=command.deed.value,
            user=command.user,
            producer_id=command.producer_id,
            set_by=command.set_by,
            set_through=command.set_through,
        )
        with self._guarded("doing a command"):
            self._observer.command_given(command)

    # ---- what is in force ------------------------------------------------------------------------------

    def _reckoned(self, version: int) -> InForce:
        now_ms = self._wall_ms()
        changes = [change for change in self._ledger.changes().values() if not has_ended(change, now_ms)]
        file_wins = self._settings.quotas.runtime_changes.on_conflict == "file_wins"
        found = deciding(self._in_file, changes, file_wins=file_wins, wall_ms=now_ms)
        return InForce(
            quotas=applied(self._in_file, found),
            provenance=provenance_in_force(self._settings, found.values()),
            in_file=self._in_file,
            changes=tuple(changes),
            version=version,
        )

    def _settle(self, *, announces: bool = True) -> None:
        """After anything that may have changed what is in force: tell of it, once."""
        before = self._in_force
        after = self._reckoned(before.version)
        if after != before:
            self._in_force = after = replace(after, version=before.version + 1)
            if announces:
                announce(before, after, self._ledger.latest, self._wall_ms())
            with self._guarded("putting quotas in force"):
                self._observer.quotas_changed(after)
        if self._timer is not None:
            self._look_later()

    def _look(self) -> None:
        """Whether a temporary change has ended, and whether the disk is writable again."""
        self._look_later()
        self._settle()
        if self._dir is not None and self._dir.is_behind:
            self._dir.try_again()

    def _look_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self._wall_ms()
        end_ms = next_end(self._in_force.changes, now_ms)
        delay_s = LOOK_EVERY_S if end_ms is None else min(LOOK_EVERY_S, (end_ms - now_ms) / 1000 + 0.001)
        self._timer = self._loop.call_later(delay_s, self._look)

    @contextlib.contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            log.exception(Event.UNEXPECTED_ERROR, reason=f"{doing}: {error}")
