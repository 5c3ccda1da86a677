"""Texts in JSON: events, records of the quotas topic, bodies posted to the admin address; compared with DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Final, cast

import duckdb

from pidgate.events.definitions import DecisionEvent, Event
from pidgate.events.reading import EventUnreadable, from_json
from pidgate.events.writing import to_json
from pidgate.gateway.admin.bodies import BodyInvalid, changes_in, command_in
from pidgate.gateway.quotas import change_log
from pidgate.gateway.quotas.change_log import LogEntry, RecordUnreadable
from pidgate.gateway.state.decision_scan import scan, type_of
from pidgate.quota.changes import Action, Change, Command, CommandType, Setting
from pidgate.quota.changes import Target as ChangeTarget
from pidgate.quota.settings import Mode
from tests.fuzz.requests import NotTaken
from tests.fuzz.target import Target
from tests.support.recordings import load


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def _texts(value: bytes, *paths: str) -> Sequence[str | None]:
    """Return what DuckDB finds at these paths, as text. Raises AssertionError where it finds no JSON."""
    text = value.decode("utf-8")
    columns = ", ".join("json_extract_string(?, ?)" for _ in paths)
    given = [one for path in paths for one in (text, path)]
    row = _database().execute(f"SELECT json_valid(?), {columns}", [text, *given]).fetchone()
    assert row is not None
    assert row[0], "no JSON to DuckDB"
    return cast("Sequence[str | None]", row[1:])


def _is_given_twice(value: bytes, *names: str) -> bool:
    """Return whether a name may stand twice: then the first counts there, the last here."""
    return b"\\" in value or any(value.count(f'"{name}"'.encode()) > 1 for name in names)


# ---- events ---------------------------------------------------------------------------------------------


def _event(data: bytes) -> object:
    """The event, and what a restore finds of a decision in a hurry."""
    event = from_json(data)
    return event, type_of(data), scan(data) if isinstance(event, DecisionEvent) else None


def _event_again(data: bytes, found: object) -> None:
    event, kind, scanned = cast("tuple[Event, str, Any]", found)
    assert from_json(to_json(event)) == event
    if scanned is not None and not _is_given_twice(data, *(field.name for field in fields(DecisionEvent))):
        assert isinstance(event, DecisionEvent)
        assert scanned[1:5] == (event.seq, event.decision_time_ms, event.user, event.producer_id)
    if _is_given_twice(data, "type"):
        return
    assert _texts(data, "$.type") == (kind,)


def _event_seeds() -> Iterator[bytes]:
    seen: set[Any] = set()
    for record in load("patterns").records:
        kind = json.loads(record.value)["type"]
        if kind not in seen:
            seen.add(kind)
            yield record.value


# ---- records of the quotas topic ------------------------------------------------------------------------

_BETWEEN: Final = b"\n"
"""Key and value."""


def _record(data: bytes) -> object:
    key, _, value = data.partition(_BETWEEN)
    log = change_log.ChangeLog("run", has_topic=True)
    log.apply(key, b"")  # a tombstone
    log.apply(key, value)
    entry = change_log.decode(key, value)
    assert log.unreadable == 0
    return entry


def _record_again(data: bytes, found: object) -> None:
    entry = cast(LogEntry, found)
    what = entry.what
    assert change_log.decode(change_log.key_of(what), change_log.encode(entry)) == entry
    key, _, value = data.partition(_BETWEEN)
    if isinstance(what, Change):
        assert change_log.target_of(key) == what.target
    if _is_given_twice(value, "run", "seq", "user", "change", "command", "value"):
        return
    run, seq, user, value_set = _texts(value, "$.run", "$.seq", "$.user", "$.value")
    assert (run, seq) == (entry.run, str(entry.seq))
    if isinstance(what, Command):
        assert user == what.user
    else:
        assert user == what.target.user
        assert value_set == (None if what.value is None else str(what.value))


def _record_seeds() -> Iterator[bytes]:
    rate = ChangeTarget(Setting.PRODUCER_IDS_RATE, "alice")
    changes: tuple[Change | Command, ...] = (
        Change(target=rate, action=Action.SET, value=5_000, note="n", set_by="me", set_wall_ms=7),
        Change(target=ChangeTarget(Setting.MODE, None), action=Action.SET, value=Mode.OBSERVE),
        Change(
            target=ChangeTarget(Setting.TRANSACTIONAL_IDS_RATE, "a:b", temporary=True),
            action=Action.SET,
            value=1,
            until_wall_ms=99,
        ),
        Change(target=rate, action=Action.RESET),
        Command(type=CommandType.RELEASE, user="alice", producer_id=4711),
        Command(type=CommandType.REFILL, user="b:c"),
    )
    for seq, what in enumerate(changes):
        yield change_log.key_of(what) + _BETWEEN + change_log.encode(LogEntry("run", seq, what))


# ---- bodies of the admin address ------------------------------------------------------------------------


def _posted(data: bytes) -> object:
    try:
        return changes_in(data, through="g", wall_ms=1_000)
    except BodyInvalid:
        return command_in(data, through="g", wall_ms=1_000)


def _posted_again(data: bytes, found: object) -> None:
    names = ("user", "setting", "action", "value", "set_by", "deed", "producer_id", "changes")
    one = found[0] if isinstance(found, tuple) else found
    one = one[0] if isinstance(one, list) else one
    if _is_given_twice(data, *names):
        return  # the user of each change, too
    if isinstance(one, Command):
        user, deed, producer_id = _texts(data, "$.user", "$.deed", "$.producer_id")
        assert (user, deed) == (one.user, one.type.value)
        assert producer_id in (None, str(one.producer_id))
        return
    assert isinstance(one, Change)
    of = "$.changes[0]"
    user, setting, action, value = _texts(data, f"{of}.user", f"{of}.setting", f"{of}.action", f"{of}.value")
    assert (user, setting, action) == (one.target.user, one.target.setting.value, one.action.value)
    if isinstance(one.value, Mode):
        assert value == one.value.value
    elif one.value is not None:
        assert value is not None
        assert one.value == round(float(value) * 1000)


def _posted_seeds() -> Iterator[bytes]:
    rate = {"setting": "producer_ids_rate", "user": "alice", "action": "set", "value": 5.5}
    for body in (
        {"changes": [rate], "set_by": "me"},
        {"changes": [{**rate, "value": 7, "for": "2h", "temporary": True, "note": "why"}]},
        {"changes": [{"setting": "mode", "user": None, "action": "set", "value": "observe"}]},
        {"changes": [{"setting": "transactional_ids_rate", "user": "bob", "action": "reset"}]},
        {"deed": "release", "user": "alice", "producer_id": 4711},
        {"deed": "refill", "user": "alice", "set_by": "me"},
    ):
        yield json.dumps(body).encode()


TARGETS: Final = (
    Target("events", _event, _event_again, _event_seeds, (EventUnreadable,)),
    Target("quota_records", _record, _record_again, _record_seeds, (RecordUnreadable, NotTaken)),
    Target("admin_bodies", _posted, _posted_again, _posted_seeds, (BodyInvalid,)),
)
