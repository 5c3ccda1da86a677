"""The pipeline's reading of records and the gateways' own reader: one verdict, one event."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION, Event
from pidgate.events.reading import EventUnreadable, from_json
from pidgate.events.writing import to_json
from pidgate.pipeline.ingest import reading
from pidgate.pipeline.ingest.columns import DeadLetter, Good, Place, Reason, Record
from pidgate.pipeline.ingest.reading import answer_to
from pidgate.pipeline.ingest.staged import Staging
from pidgate.pipeline.schemas import table_schema
from pidgate.pipeline.tasks import unsealed
from tests.unit.events.made_up import a_decision, any_event, events_of

NOW_MS = 1_763_733_600_000
HOUR_MS = 3_600_000


def at(offset: int, append_time_ms: int = NOW_MS) -> Place:
    return Place(0, offset, append_time_ms)


def changed(**fields: Any) -> bytes:
    """A decision whose JSON was tampered with; ... removes a field."""
    told = json.loads(to_json(a_decision())) | fields
    return json.dumps(
        {key: value for key, value in told.items() if value is not ...}, separators=(",", ":")
    ).encode()


def verdict(value: bytes | None) -> str | None:
    answer = answer_to(value)
    return answer.reason if isinstance(answer, DeadLetter) else None


PLAIN = to_json(a_decision())
DAMAGED: dict[str, bytes | None] = {
    "no value": None,
    "empty": b"",
    "no JSON": b"hello",
    "a list": b"[1]",
    "cut short": PLAIN[:-20],
    "something behind it": PLAIN + b" {}",
    "a comma behind it": PLAIN + b",",
    "single quotes": PLAIN.replace(b'"', b"'"),
    "not UTF-8": PLAIN.replace(b"etl", b"\xff\xfe"),
    "half a surrogate": PLAIN.replace(b"etl", b"\\ud800"),
    "number for text": changed(user=5),
    "object for text": changed(user={"a": 1}),
    "text for number": changed(seq="7"),
    "fraction for number": changed(seq=7.0),
    "true for number": changed(seq=True),
    "65 bits": changed(producer_id=1 << 63),
    "number for boolean": changed(transactional=1),
    "null for text": changed(user=None),
    "null for number": changed(producer_id=None),
    "missing": changed(producer_id=...),
    "missing, has a default": changed(listener=...),
    "null in a list": changed(applied_offsets=[1, None]),
    "text for a list": changed(applied_offsets="1"),
    "unknown word": changed(reason="weather"),
    "unknown word of a newer version": changed(reason="weather", schema_version=SCHEMA_VERSION + 1),
    "newer, one field more": changed(schema_version=SCHEMA_VERSION + 7, moon={"user": 5, "phase": [1]}),
    "version 0": changed(schema_version=0),
    "no version": changed(schema_version=...),
    "version of 65 bits": changed(schema_version=1 << 64),
    "version in words": changed(schema_version="1"),
    "unknown type": changed(type="weather"),
    "no type": changed(type=...),
    "another type": changed(type="id_usage"),
    "two types": PLAIN[:-1] + b',"type":"id_usage"}',
    "two seqs": PLAIN[:-1] + b',"seq":8}',
    "NaN": changed(seq=float("nan")),
    "escaped key": PLAIN.replace(b'"user":"etl"', b'"us\\u0065r":5'),
    "spaces": json.dumps(json.loads(PLAIN), indent=2).encode(),
    "fields in another order": json.dumps(json.loads(PLAIN), sort_keys=True).encode(),
    "nested too deep": changed(moon=...)[:-1] + b',"moon":' + b"[" * 1500 + b"]" * 1500 + b"}",
    "clef": changed(client_id='\U0001d11e and \\":'),
    "looks like a field": changed(client_id='","user":5,"seq":"x'),
}


def test_damage_is_judged_as_gateways_judge_it() -> None:
    by_name = {name: reading.read(value) for name, value in DAMAGED.items()}
    told = {name: found.reason if isinstance(found, DeadLetter) else None for name, found in by_name.items()}
    assert told == {name: verdict(value) for name, value in DAMAGED.items()}
    for name, found in by_name.items():
        if isinstance(found, DeadLetter):
            assert found.detail, name
        else:
            assert as_told(found) == expected(DAMAGED[name] or b""), name
    assert (told["unknown type"], told["two types"]) == (Reason.UNKNOWN_TYPE, Reason.MALFORMED)
    assert "producer_id is missing" in dead("missing").detail
    # What cannot be read but has a number did arrive.
    assert dead("unknown type")[3:6] == ("gw-1", "a1b2c3", 7)
    assert dead("cut short")[3:6] == (None, None, None)


def dead(name: str) -> DeadLetter:
    found = reading.read(DAMAGED[name])
    assert isinstance(found, DeadLetter)
    return found


def as_told(found: Good) -> dict[str, Any]:
    names = [field.name for field in fields(EVENT_TYPES[found.event.type])]
    return {name: msgspec.to_builtins(getattr(found.event, name)) for name in names}


def expected(value: bytes) -> dict[str, Any]:
    return asdict(from_json(value))


@st.composite
def tampered(draw: st.DrawFn) -> bytes:
    """An event with one value of its JSON replaced by another kind of value."""
    told = json.loads(to_json(draw(any_event)))
    told["schema_version"] = draw(st.sampled_from((SCHEMA_VERSION, SCHEMA_VERSION, SCHEMA_VERSION + 1)))
    if draw(st.booleans()):
        place = told
        while True:
            key = draw(st.sampled_from(sorted(place)))
            inner = place[key]
            if isinstance(inner, list) and inner and isinstance(inner[0], dict) and draw(st.booleans()):
                place = inner[0]
                continue
            break
        values: tuple[Any, ...] = (None, 5, -1, 2.5, "x", "5", True, [], {}, 1 << 64, [None], ...)
        value = draw(st.sampled_from(values))
        if value is ...:
            del place[key]
        else:
            place[key] = value
    return json.dumps(told, separators=(",", ":"), ensure_ascii=draw(st.booleans())).encode()


def many_tampered(count: int) -> list[bytes]:
    values: list[bytes] = []

    @settings(max_examples=count, deadline=None, phases=[Phase.generate], database=None)
    @given(tampered())
    def collect(value: bytes) -> None:
        values.append(value)

    collect()
    return values


def test_two_readers_one_verdict() -> None:
    seen: set[str | None] = set()
    for value in many_tampered(400):
        found = reading.read(value)
        reason = found.reason if isinstance(found, DeadLetter) else None
        assert reason == verdict(value), value
        seen.add(reason)
        if isinstance(found, Good):
            assert as_told(found) == expected(value)
            assert found.schema_version == json.loads(value)["schema_version"]
        else:
            with pytest.raises(EventUnreadable):
                from_json(value)
    assert {None, Reason.MALFORMED} <= seen


@given(any_event)
def test_what_a_gateway_writes_leaves_no_doubt(event: Event) -> None:
    """Else all would go through the slower reader."""
    value = to_json(event)
    found = reading.surely(value)
    assert found is not None
    assert (found.event.type, as_told(found)) == (event.type, asdict(event))
    assert reading.surely(value[:-1]) is None


def test_late_and_early_clocks() -> None:
    walls = {
        NOW_MS - 24 * HOUR_MS: None,
        NOW_MS - 24 * HOUR_MS - 1: Reason.LATE,
        NOW_MS + HOUR_MS: None,
        NOW_MS + HOUR_MS + 1: Reason.FROM_THE_FUTURE,
        -(1 << 63): Reason.LATE,
        (1 << 63) - 1: Reason.FROM_THE_FUTURE,
    }
    found = {wall: misplaced(wall, NOW_MS) for wall in walls}
    assert {wall: None if one is None else one.reason for wall, one in found.items()} == walls
    late = found[NOW_MS - 24 * HOUR_MS - 1]
    assert late is not None
    assert late.detail == "appended 86400001 ms after its creation"
    assert late[2:] == ("decision", "gw-1", "a1b2c3", 7, NOW_MS - 24 * HOUR_MS - 1)


def misplaced(wall_time_ms: int, append_time_ms: int) -> DeadLetter | None:
    found = Good(a_decision(wall_time_ms=wall_time_ms), SCHEMA_VERSION)
    return reading.misplaced(found, append_time_ms, NOW_MS, 24 * HOUR_MS, HOUR_MS)


@pytest.mark.parametrize("clock", [-1, -(1 << 63), (1 << 63) - 1, reading.LAST_MS + 1])
def test_there_is_a_folder_whatever_the_clocks_say(tmp_path: Path, clock: int) -> None:
    """Whoever may write to the topic chooses both times. No day has a name before 1 or after 9999."""
    records = [(to_json(a_decision(wall_time_ms=clock)), at(0, clock)), (b"hello", at(1, clock))]
    arrivals = staged(tmp_path, records)
    assert arrivals["kafka_offset"].to_pylist() == [0, 1]
    assert arrivals["reason"].null_count == 0


def staged(folder: Path, records: Iterable[Record]) -> pa.Table:
    staging = Staging(str(folder / "staging"), late_after_ms=24 * HOUR_MS, ahead_ms=HOUR_MS, now_ms=NOW_MS)
    return unsealed(staging.of(records))["arrivals"]


def test_tables_have_what_was_read(tmp_path: Path) -> None:
    """Of all types, of both readers; in columns and files that Spark takes."""
    events = many_events(200)
    values = [to_json(replace(event, wall_time_ms=NOW_MS, **_use(event))) for event in events]
    values += [
        json.dumps(json.loads(value) | {"schema_version": SCHEMA_VERSION + 1}).encode() for value in values
    ]
    arrivals = staged(tmp_path, ((value, at(offset)) for offset, value in enumerate([*values, b"hello"])))
    rows: dict[int, dict[str, Any]] = {}
    for path in arrivals["file"].unique().to_pylist():
        table = pq.ParquetFile(tmp_path / "staging" / path).read()
        word = path.split("/")[1]
        if path.startswith("events/"):
            assert table.schema.names == table_schema(word).names
            rows |= {row["kafka_offset"]: row | {"type": word} for row in table.to_pylist()}
    assert {row["type"] for row in rows.values()} == set(EVENT_TYPES)
    for offset, value in enumerate(values):
        row = rows.pop(offset)
        assert [row.pop(name) for name in ("kafka_partition", "append_time_ms")] == [0, NOW_MS]
        told = {"schema_version": json.loads(value)["schema_version"], "kafka_offset": offset}
        assert row == expected(value) | told | {"type": json.loads(value)["type"]}
    assert rows == {}
    told = arrivals.select(["type", "reason", "gateway_id", "seq", "kafka_offset"]).to_pylist()
    assert len(told) == len(values) + 1
    for row in told:
        given = json.loads(values[row["kafka_offset"]]) if row["kafka_offset"] < len(values) else {}
        assert (row["type"], row["gateway_id"], row["seq"]) == tuple(
            map(given.get, ("type", "gateway_id", "seq"))
        )
        assert row["reason"] == (None if given else Reason.MALFORMED)


def _use(event: Event) -> dict[str, Any]:
    """An interval that stays as it is."""
    return {"first_ms": NOW_MS - 9, "last_ms": NOW_MS} if event.type == "id_usage" else {}


def many_events(count: int) -> list[Event]:
    """`count` of each type."""
    made: list[Event] = []

    @settings(max_examples=count, deadline=None, phases=[Phase.generate], database=None)
    @given(st.tuples(*map(events_of, EVENT_TYPES.values())))
    def collect(events: tuple[Event, ...]) -> None:
        made.extend(events)

    collect()
    return made
