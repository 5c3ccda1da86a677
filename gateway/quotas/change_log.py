"""What one gateway knows of changes: those of the topic in the topic's order, and its own that are on their way. PURE.

The topic's order decides, and no clock: whoever reads it to its end knows the same. An own change is on top of what
the topic says until it is read there; then its place in the topic counts, like everybody's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pidgate.gateway.quotas.records import LogEntry, RecordUnreadable, decode, target_of
from pidgate.quota.changes import Action, Change, Command, Target


class Restored(NamedTuple):
    """A change out of the state directory. `is_pending`: it was on its way to the topic."""

    told: LogEntry
    is_pending: bool


class Ledger:
    """`run` names this process. Without a topic (`has_topic` False) a change is kept as soon as it is made."""

    def __init__(self, run: str, *, has_topic: bool) -> None:
        self._run = run
        self._has_topic = has_topic
        self._seq = 0
        self._kept: dict[Target, LogEntry] = {}
        self._pending: dict[Target, LogEntry] = {}
        self._acknowledged: set[str] = set()
        self._reading: dict[Target, LogEntry] | None = {} if has_topic else None
        """What has been read so far, until the end is reached once: only then it takes the place of what is known."""
        self._read_ids: set[str] = set()
        self._newest_read: dict[Target, int] = {}
        """The newest own telling of each target that was read."""
        self.unreadable = 0
        self.last_unreadable = ""

    @property
    def is_read(self) -> bool:
        """The topic was read to its end once, or there is none."""
        return self._reading is None

    def changes(self) -> dict[Target, Change]:
        """All that is not forgotten, in force or not."""
        told = {**self._kept, **self._pending}.values()
        return {
            one.what.target: one.what for one in told if isinstance(one.what, Change) and not _forgets(one)
        }

    def latest(self, target: Target) -> Change | None:
        """The last word on it, also when it says to forget."""
        told = self._pending.get(target) or self._kept.get(target)
        return told.what if told is not None and isinstance(told.what, Change) else None

    def to_keep(self) -> list[Restored]:
        """For the state directory: as `restore` takes it."""
        kept = [Restored(told, False) for told in self._kept.values() if not _forgets(told)]
        return kept + [Restored(told, told.id not in self._acknowledged) for told in self._pending.values()]

    def restore(self, found: Iterable[Restored]) -> None:
        """What the state directory holds, in that order; before anything else."""
        for told, is_pending in found:
            if isinstance(told.what, Change):
                (self._pending if is_pending and self._has_topic else self._kept)[told.what.target] = told

    # Own changes

    def tell(self, what: Change | Command) -> LogEntry:
        """Made here: from now on in force here. To be written to the topic, if there is one."""
        self._seq += 1
        told = LogEntry(self._run, self._seq, what)
        if isinstance(what, Change):
            (self._pending if self._has_topic else self._kept)[what.target] = told
        return told

    def acknowledged(self, told: LogEntry) -> None:
        """The topic has taken it; where in its order is known when it is read."""
        if isinstance(told.what, Change) and self._pending.get(told.what.target) == told:
            self._acknowledged.add(told.id)

    def is_own(self, told: LogEntry) -> bool:
        return told.run == self._run

    # What the topic says

    def heard(self, key: bytes, value: bytes) -> LogEntry | None:
        """One record, in the topic's order; an empty value is a tombstone.

        Gives a command that is to be done, or a change that has to be told again. A record that cannot be
        understood is counted.
        """
        if not value:
            self._forget(key)
            return None
        try:
            told = decode(key, value)
        except RecordUnreadable as error:
            self.unreadable += 1
            self.last_unreadable = str(error)
            return None
        if isinstance(told.what, Command):
            # Of the past: done by those who were there.
            return None if self._reading is not None else told
        return self._take(told, told.what.target)

    def _take(self, told: LogEntry, target: Target) -> LogEntry | None:
        newest = self._newest_read.get(target, 0)
        if told.run == self._run:
            self._newest_read[target] = max(newest, told.seq)
        if self._reading is not None:
            self._reading[target] = told
            self._read_ids.add(told.id)
            return None
        before = self._kept.get(target)
        self._kept[target] = told
        self._arrived(target, told.id)
        if (
            told.run != self._run
            or told.seq > newest
            or before is None
            or before.what == told.what
            or target in self._pending
        ):
            return None
        # A copy that was on its way for long has come after its successors: what held before has to hold again.
        return self.tell(before.what)

    def _arrived(self, target: Target, told_id: str) -> None:
        pending = self._pending.get(target)
        if pending is not None and pending.id == told_id:
            del self._pending[target]
            self._acknowledged.discard(told_id)

    def _forget(self, key: bytes) -> None:
        target = target_of(key)
        if target is not None:
            (self._kept if self._reading is None else self._reading).pop(target, None)

    def caught_up(self) -> list[LogEntry]:
        """The topic was read to its end: it knows better than what was known.

        Gives what an earlier run did not get into it; what this run tells is on its way.
        """
        if self._reading is None:
            return []
        self._kept, self._reading = self._reading, None
        for target, pending in list(self._pending.items()):
            if pending.id in self._read_ids:
                self._arrived(target, pending.id)
        self._read_ids.clear()
        return [told for told in self._pending.values() if told.run != self._run]


def _forgets(told: LogEntry) -> bool:
    return isinstance(told.what, Change) and told.what.action is Action.RESET
