"""The quota changes known to one gateway, and their keys and JSON in the topic and the state directory. PURE.

A key names the target of a change, so that compaction keeps the newest of each:

    change:<setting>:<standing|temporary>[:<user>]     without a user: the default's rate, or the mode of all users
    command:<type>:<user>[:<producer id>]              in this order the user, who may hold colons, is last but one

A value is one JSON object. `v` is the format of its writer, `readable_since` the oldest format able to read
it. A format that only adds keys keeps `readable_since`. A record without a value (a tombstone) removes its
key.

The topic's order decides, never a clock: all readers at its end have the same state. A gateway's own change
overrides the topic's until it is read back; from then on its position in the topic counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pidgate.quota.changes import Action, Change, Command, CommandType, Setting, Target
from pidgate.quota.settings import Mode

FORMAT: Final = 1
READABLE_SINCE: Final = 1
_ANY_NAME: Final = "surrogatepass"
"""User names may be invalid Unicode."""


class RecordUnreadable(Exception):
    """A record that is skipped. The text is the reason."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A change or a command as published by one gateway process (`run`). `seq` counts its entries."""

    run: str
    seq: int
    what: Change | Command

    @property
    def id(self) -> str:
        return f"{self.run}-{self.seq}"


class Restored(NamedTuple):
    """An entry of the state directory. `is_pending`: not acknowledged by the topic."""

    entry: LogEntry
    is_pending: bool


class ChangeLog:
    """Changes by target: those of the topic, and own ones not read back yet.

    `run` names this process. Without a topic (`has_topic` False) a change is kept as soon as it is made.
    """

    def __init__(self, run: str, *, has_topic: bool) -> None:
        self._run = run
        self._has_topic = has_topic
        self._seq = 0
        self._kept: dict[Target, LogEntry] = {}
        self._pending: dict[Target, LogEntry] = {}
        self._acknowledged: set[str] = set()
        self._reading: dict[Target, LogEntry] | None = {} if has_topic else None
        """Entries read so far. Replaces `_kept` when the end is reached for the first time, then None."""
        self._read_ids: set[str] = set()
        self._newest_read: dict[Target, int] = {}
        """seq of the newest own entry read, by target."""
        self.unreadable = 0
        self.last_unreadable = ""

    @property
    def is_read(self) -> bool:
        """Return whether the topic was read to its end once, or there is none."""
        return self._reading is None

    def changes(self) -> dict[Target, Change]:
        """Return every change that is not reset, in force or not."""
        entries = {**self._kept, **self._pending}.values()
        return {
            entry.what.target: entry.what
            for entry in entries
            if isinstance(entry.what, Change) and not _is_reset(entry)
        }

    def latest(self, target: Target) -> Change | None:
        """Return the newest change of a target, resets included."""
        entry = self._pending.get(target) or self._kept.get(target)
        return entry.what if entry is not None and isinstance(entry.what, Change) else None

    def to_keep(self) -> list[Restored]:
        """Return the entries for the state directory, as `restore` takes them."""
        kept = [Restored(entry, False) for entry in self._kept.values() if not _is_reset(entry)]
        return kept + [
            Restored(entry, entry.id not in self._acknowledged) for entry in self._pending.values()
        ]

    def restore(self, found: Iterable[Restored]) -> None:
        """Load the entries of the state directory. Call first."""
        for entry, is_pending in found:
            if isinstance(entry.what, Change):
                (self._pending if is_pending and self._has_topic else self._kept)[entry.what.target] = entry

    def append(self, what: Change | Command) -> LogEntry:
        """Add an entry of this process.

        A change applies here from now on. The caller writes the entry to the topic.
        """
        self._seq += 1
        entry = LogEntry(self._run, self._seq, what)
        if isinstance(what, Change):
            (self._pending if self._has_topic else self._kept)[what.target] = entry
        return entry

    def acknowledge(self, entry: LogEntry) -> None:
        """Note that the topic has an entry. Its position is known once it is read back."""
        if isinstance(entry.what, Change) and self._pending.get(entry.what.target) == entry:
            self._acknowledged.add(entry.id)

    def is_own(self, entry: LogEntry) -> bool:
        """Return whether this process published the entry."""
        return entry.run == self._run

    def apply(self, key: bytes, value: bytes) -> LogEntry | None:
        """Apply one record of the topic, in order. An empty value is a tombstone.

        Returns a command to execute, or a change to publish again. Unreadable records are counted.
        """
        if not value:
            self._remove(key)
            return None
        try:
            entry = decode(key, value)
        except RecordUnreadable as error:
            self.unreadable += 1
            self.last_unreadable = str(error)
            return None
        if isinstance(entry.what, Command):
            # A past command: the gateways running at that time executed it.
            return None if self._reading is not None else entry
        return self._apply_change(entry, entry.what.target)

    def _apply_change(self, entry: LogEntry, target: Target) -> LogEntry | None:
        newest = self._newest_read.get(target, 0)
        if entry.run == self._run:
            self._newest_read[target] = max(newest, entry.seq)
        if self._reading is not None:
            self._reading[target] = entry
            self._read_ids.add(entry.id)
            return None
        before = self._kept.get(target)
        self._kept[target] = entry
        self._settle(target, entry.id)
        if (
            entry.run != self._run
            or entry.seq > newest
            or before is None
            or before.what == entry.what
            or target in self._pending
        ):
            return None
        # A delayed duplicate was written after its successors: the earlier state has to be restored.
        return self.append(before.what)

    def _settle(self, target: Target, entry_id: str) -> None:
        pending = self._pending.get(target)
        if pending is not None and pending.id == entry_id:
            del self._pending[target]
            self._acknowledged.discard(entry_id)

    def _remove(self, key: bytes) -> None:
        target = target_of(key)
        if target is not None:
            (self._kept if self._reading is None else self._reading).pop(target, None)

    def finish_reading(self) -> list[LogEntry]:
        """Replace the previous state by the state read up to the topic's end.

        Returns the entries that an earlier run could not write; those of this run are being written.
        """
        if self._reading is None:
            return []
        self._kept, self._reading = self._reading, None
        for target, pending in list(self._pending.items()):
            if pending.id in self._read_ids:
                self._settle(target, pending.id)
        self._read_ids.clear()
        return [entry for entry in self._pending.values() if entry.run != self._run]


def _is_reset(entry: LogEntry) -> bool:
    return isinstance(entry.what, Change) and entry.what.action is Action.RESET


def key_of(what: Change | Command) -> bytes:
    """Return the record key of a change or a command."""
    if isinstance(what, Change):
        return key_of_target(what.target)
    of_id = f":{what.producer_id}" if what.type is CommandType.RELEASE else ""
    return f"command:{what.type}:{what.user}{of_id}".encode(errors=_ANY_NAME)


def key_of_target(target: Target) -> bytes:
    """Return the record key of a target's changes."""
    kept = "temporary" if target.temporary else "standing"
    of_user = "" if target.user is None else f":{target.user}"
    return f"change:{target.setting}:{kept}{of_user}".encode(errors=_ANY_NAME)


def target_of(key: bytes) -> Target | None:
    """Return the target named by a change's key. None for any other key."""
    try:
        kind, setting, kept, *user = key.decode(errors=_ANY_NAME).split(":", 3)
        if kind == "change" and kept in ("standing", "temporary"):
            return Target(Setting(setting), user[0] if user else None, kept == "temporary")
    except ValueError:
        pass
    return None


def to_json(entry: LogEntry) -> dict[str, Any]:
    """Return an entry as a JSON object."""
    head = {"v": FORMAT, "readable_since": READABLE_SINCE, "run": entry.run, "seq": entry.seq}
    what = entry.what
    body: dict[str, Any]
    if isinstance(what, Change):
        body = {
            "change": what.target.setting.value,
            "user": what.target.user,
            "temporary": what.target.temporary,
            "action": what.action.value,
            "value": what.value.value if isinstance(what.value, Mode) else what.value,
            "until_wall_ms": what.until_wall_ms,
            "note": what.note,
        }
    else:
        body = {"command": what.type.value, "user": what.user, "producer_id": what.producer_id}
    origin = {"set_by": what.set_by, "set_wall_ms": what.set_wall_ms, "set_through": what.set_through}
    return {**head, **body, **origin}


def encode(entry: LogEntry) -> bytes:
    return json.dumps(to_json(entry), separators=(",", ":")).encode()


def decode(key: bytes, value: bytes) -> LogEntry:
    """Decode a record.

    Raises RecordUnreadable, also if key and value disagree, because compaction goes by key.
    """
    try:
        entry = from_json(json.loads(value))
    except (ValueError, RecursionError) as error:  # base class of UnicodeDecodeError and JSONDecodeError
        raise RecordUnreadable(f"no JSON of a change: {error}") from error
    if key_of(entry.what) != key:
        raise RecordUnreadable(f"its key {key!r} does not match its contents")
    return entry


def from_json(fields: object) -> LogEntry:
    """Decode an entry from a JSON object. Raises RecordUnreadable."""
    if not isinstance(fields, dict):
        raise RecordUnreadable("no JSON object")
    try:
        if fields["readable_since"] > FORMAT:
            raise RecordUnreadable(f"a newer format, {fields['v']}")
        what = _change(fields) if "change" in fields else _command(fields)
        return LogEntry(_text(fields, "run"), _number(fields, "seq"), what)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordUnreadable(f"no change and no command: {error!r}") from error


def _change(fields: dict[str, Any]) -> Change:
    setting, user, value = Setting(fields["change"]), fields["user"], fields["value"]
    until = fields.get("until_wall_ms")
    if value is not None:
        value = Mode(value) if setting is Setting.MODE else _number(fields, "value")
    return Change(
        target=Target(
            setting, None if user is None else _text(fields, "user"), fields.get("temporary", False) is True
        ),
        action=Action(fields["action"]),
        value=value,
        until_wall_ms=None if until is None else _number(fields, "until_wall_ms"),
        note=_text(fields, "note", ""),
        **_origin(fields),
    )


def _command(fields: dict[str, Any]) -> Command:
    return Command(
        type=CommandType(fields["command"]),
        user=_text(fields, "user"),
        producer_id=_number(fields, "producer_id"),
        **_origin(fields),
    )


def _origin(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "set_by": _text(fields, "set_by", ""),
        "set_wall_ms": _number(fields, "set_wall_ms"),
        "set_through": _text(fields, "set_through", ""),
    }


def _text(fields: dict[str, Any], name: str, otherwise: str | None = None) -> str:
    value = fields[name] if otherwise is None else fields.get(name, otherwise)
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}")
    return value


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{name} has more than 64 bits")
    return value
