"""Changes and commands as they lie in the quotas topic and in the state directory: keys and JSON. PURE.

A key names what a change is about, so that compaction keeps the newest of each:

    change:<setting>:<standing|temporary>[:<user>]     without a user: the default's rate, or the mode of all users
    command:<deed>:<user>[:<producer id>]              in this order the user, who may hold colons, is last but one

A value is one JSON object. `v` is the format that wrote it, `readable_since` the oldest format that understands it:
a format that only adds keys leaves that as it is. A record without a value (a tombstone) forgets its key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from pidgate.quota.changes import Action, Change, Command, CommandType, Setting, Target
from pidgate.quota.settings import Mode

FORMAT: Final = 1
READABLE_SINCE: Final = 1
_ANY_NAME: Final = "surrogatepass"
"""Clients may call themselves what is no Unicode text."""


class RecordUnreadable(Exception):
    """Why a record is passed over."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A change or a command, and the name of this telling of it: `run` of the gateway's process and a number."""

    run: str
    seq: int
    what: Change | Command

    @property
    def id(self) -> str:
        return f"{self.run}-{self.seq}"


def key_of(what: Change | Command) -> bytes:
    return key_of_target(what.target) if isinstance(what, Change) else _key_of_command(what)


def key_of_target(target: Target) -> bytes:
    kept = "temporary" if target.temporary else "standing"
    of_user = "" if target.user is None else f":{target.user}"
    return f"change:{target.setting}:{kept}{of_user}".encode(errors=_ANY_NAME)


def _key_of_command(command: Command) -> bytes:
    of_id = f":{command.producer_id}" if command.deed is CommandType.RELEASE else ""
    return f"command:{command.deed}:{command.user}{of_id}".encode(errors=_ANY_NAME)


def target_of(key: bytes) -> Target | None:
    """What a key of a change is about; None: it is no such key."""
    try:
        kind, setting, kept, *user = key.decode(errors=_ANY_NAME).split(":", 3)
        if kind == "change" and kept in ("standing", "temporary"):
            return Target(Setting(setting), user[0] if user else None, kept == "temporary")
    except ValueError:
        pass
    return None


def to_json(told: LogEntry) -> dict[str, Any]:
    head = {"v": FORMAT, "readable_since": READABLE_SINCE, "run": told.run, "seq": told.seq}
    what = told.what
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
        body = {"command": what.deed.value, "user": what.user, "producer_id": what.producer_id}
    said = {"set_by": what.set_by, "set_wall_ms": what.set_wall_ms, "set_through": what.set_through}
    return {**head, **body, **said}


def encode(told: LogEntry) -> bytes:
    return json.dumps(to_json(told), separators=(",", ":")).encode()


def decode(key: bytes, value: bytes) -> LogEntry:
    """Raises RecordUnreadable; also when the key is not that of the value: compaction goes by the key."""
    try:
        told = from_json(json.loads(value))
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are such
        raise RecordUnreadable(f"no JSON of a change: {error}") from error
    if key_of(told.what) != key:
        raise RecordUnreadable(f"its key {key!r} is not that of what it holds")
    return told


def from_json(fields: object) -> LogEntry:
    """Raises RecordUnreadable."""
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
        **_said(fields),
    )


def _command(fields: dict[str, Any]) -> Command:
    return Command(
        deed=CommandType(fields["command"]),
        user=_text(fields, "user"),
        producer_id=_number(fields, "producer_id"),
        **_said(fields),
    )


def _said(fields: dict[str, Any]) -> dict[str, Any]:
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
    return value
