"""The pipeline's reading of records and the gateways' own reader: one verdict, one event."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION, Event
from pidgate.events.reading import EventUnreadable, from_json
from pidgate.events.writing import to_json
from pidgate.pipeline.ingest import reading
from pidgate.pipeline.ingest.batches import Rules, read_batch
from pidgate.pipeline.ingest.columns import RECORDS, Reason
from pidgate.pipeline.ingest.doubtful import answer_to
from tests.unit.events.made_up import a_decision, any_event

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


NOW_MS = 1_763_733_600_000
HOUR_MS = 3_600_000


def records(*values: bytes | None, append_time_ms: int = NOW_MS) -> list[tuple[Any, ...]]:
    return [
        (None if value is None else bytearray(value), 0, offset, append_time_ms)
        for offset, value in enumerate(values)
    ]


def read(spark: SparkSession, *values: bytes | None, rules: Rules | None = None) -> list[Row]:
    """A row for each value, in order."""
    with read_batch(spark.createDataFrame(records(*values), RECORDS), rules or Rules()) as (arrivals, _):
        rows = arrivals.orderBy("kafka_offset").collect()
    assert [row["kafka_offset"] for row in rows] == list(range(len(values)))
    return rows


def changed(**fields: Any) -> bytes:
    """A decision whose JSON was tampered with; ... removes a field."""
    told = json.loads(to_json(a_decision())) | fields
    return json.dumps(
        {key: value for key, value in told.items() if value is not ...}, separators=(",", ":")
    ).encode()


def verdict(value: bytes | None) -> str | None:
    answer: str | None = answer_to(value)["reason"]
    return answer


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
    "missing, has a default": changed(worker=...),
    "null in a list": changed(applied_offsets=[1, None]),
    "text for a list": changed(applied_offsets="1"),
    "unknown word": changed(reason="weather"),
    "unknown word of a newer version": changed(reason="weather", schema_version=SCHEMA_VERSION + 1),
    "newer, one field more": changed(schema_version=SCHEMA_VERSION + 7, moon={"user": 5, "phase": [1]}),
    "version 1": changed(schema_version=1, token_units=...),
    "version 1, tells what it cannot know": changed(schema_version=1, token_units=7),
    "version 0": changed(schema_version=0),
    "no version": changed(schema_version=...),
    "version of 65 bits": changed(schema_version=1 << 64),
    "version in words": changed(schema_version="2"),
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


def test_damage_is_judged_as_gateways_judge_it(spark: SparkSession) -> None:
    rows = read(spark, *DAMAGED.values())
    told = {name: row["reason"] for name, row in zip(DAMAGED, rows, strict=True)}
    assert told == {name: verdict(value) for name, value in DAMAGED.items()}
    for (name, value), row in zip(DAMAGED.items(), rows, strict=True):
        if row["reason"] is None and value is not None:
            assert as_told(row) == expected(value), name
        else:
            assert row["detail"], name
    assert (told["unknown type"], told["two types"]) == (Reason.UNKNOWN_TYPE, Reason.MALFORMED)
    by_name = dict(zip(DAMAGED, rows, strict=True))
    assert "producer_id is missing" in by_name["missing"]["detail"]
    # What cannot be read but has a number did arrive.
    assert [by_name["unknown type"][name] for name in ("gateway_id", "incarnation", "seq")] == [
        "gw-1",
        "a1b2c3",
        7,
    ]
    assert [by_name["cut short"][name] for name in ("gateway_id", "incarnation", "seq")] == [None, None, None]


def as_told(row: Row) -> dict[str, Any]:
    event = row[row["type"]].asDict(recursive=True)
    return {key: value for key, value in event.items() if key != "schema_version"}


def expected(value: bytes) -> dict[str, Any]:
    return asdict(from_json(value))


@st.composite
def tampered(draw: st.DrawFn) -> bytes:
    """An event with one value of its JSON replaced by another kind of value."""
    told = json.loads(to_json(draw(any_event)))
    told["schema_version"] = draw(st.sampled_from((1, SCHEMA_VERSION, SCHEMA_VERSION, SCHEMA_VERSION + 1)))
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


def test_two_readers_one_verdict(spark: SparkSession) -> None:
    values = many_tampered(400)
    seen: set[str | None] = set()
    for value, row in zip(values, read(spark, *values), strict=True):
        reason = None if row["reason"] in (Reason.LATE, Reason.FROM_THE_FUTURE) else row["reason"]
        assert reason == verdict(value), value
        seen.add(reason)
        if reason is None:
            assert as_told(row) == expected(value)
            assert row[row["type"]]["schema_version"] == json.loads(value)["schema_version"]
        else:
            with pytest.raises(EventUnreadable):
                from_json(value)
    assert {None, Reason.MALFORMED} <= seen


@given(any_event)
def test_what_a_gateway_writes_leaves_no_doubt(event: Event) -> None:
    """Else all would go through the slower reader."""
    value = to_json(event)
    word, text = reading.surely(value) or ("", b"")
    assert word == event.type
    assert from_json(text) == event
    assert reading.surely(value[:-1]) is None


def test_late_and_early_clocks(spark: SparkSession) -> None:
    walls = {
        NOW_MS - 24 * HOUR_MS: None,
        NOW_MS - 24 * HOUR_MS - 1: Reason.LATE,
        NOW_MS + HOUR_MS: None,
        NOW_MS + HOUR_MS + 1: Reason.FROM_THE_FUTURE,
        -(1 << 63): Reason.LATE,
        (1 << 63) - 1: Reason.FROM_THE_FUTURE,
    }
    rows = read(spark, *(to_json(a_decision(wall_time_ms=wall)) for wall in walls))
    assert [row["reason"] for row in rows] == list(walls.values())
    assert rows[1]["detail"] == "appended 86400001 ms after it was made"


def test_columns_of_events_do_not_meet_those_of_records() -> None:
    assert not set(EVENT_TYPES) & {*RECORDS.names, "type", "reason", "detail", *reading.IDENTITY}
    assert len(set(reading.READ.names)) == len(reading.READ.names)
