"""Gateways of two versions read each other's events: what version 1 wrote is read, and a reader of version 1 reads
what is written today.

tests/data/events-v1.jsonl and events-v1.schema.json were recorded by version 1 (corpus.py) and are never changed.
"""

import json
from collections.abc import Callable
from dataclasses import MISSING, field, fields, make_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION, DecisionEvent, Event
from pidgate.events.reading import OLDEST_READ, UPGRADES, EventUnreadable, _reader, fields_of, from_json
from pidgate.events.writing import prefix_of, to_json
from tests.support.events_page import json_schema
from tests.support.old_events import as_written_today
from tests.unit.events.corpus import corpus
from tests.unit.events.made_up import any_event
from tests.unit.events.recorded import recorded

DATA = Path(__file__).parents[2] / "data"
OF_VERSION_1 = (DATA / "events-v1.jsonl").read_bytes().splitlines()
SCHEMA_1: dict[str, Any] = json.loads((DATA / "events-v1.schema.json").read_text("utf-8"))
NEW_IN_2: dict[str, dict[str, Any]] = {
    "decision": {"token_units": None, "heard": []},
    "lifecycle": {"clock_ahead_ms": None},
}


TYPES_OF_VERSION_1 = {word: kind for word, kind in EVENT_TYPES.items() if kind.__name__ in SCHEMA_1["$defs"]}


def properties_of_version_1(kind: str) -> dict[str, Any]:
    """The fields that version 1 knew, of a type or of a record, with their schemas."""
    known = SCHEMA_1["$defs"][kind]["properties"]
    return {name: known[name] for name in known if name not in ("schema_version", "type")}


@pytest.mark.parametrize("line", OF_VERSION_1, ids=range(len(OF_VERSION_1)))
def test_every_line_of_version_1_is_read_as_it_was_meant(line: bytes) -> None:
    written = json.loads(line)
    read = json.loads(to_json(from_json(line)))
    assert written["schema_version"] == 1
    assert read == as_written_today(written) | {"schema_version": SCHEMA_VERSION} | NEW_IN_2.get(
        written["type"], {}
    )


def test_readers_in_a_hurry_see_version_1_as_of_today() -> None:
    for line in OF_VERSION_1:
        found = fields_of(line)
        assert found["schema_version"] == SCHEMA_VERSION
        assert ("token_units" in found) == (found["type"] == "decision")


def test_the_prefix_of_version_1_is_known() -> None:
    for line in OF_VERSION_1:
        kind = EVENT_TYPES[json.loads(line)["type"]]
        assert line.startswith(prefix_of(kind, 1))


def words_in(schema: dict[str, Any]) -> set[str]:
    """All words that a field may hold."""
    found = {word for word in schema.get("enum", []) if word is not None}
    for option in schema.get("anyOf", []):
        found |= words_in(option)
    return found


@pytest.mark.parametrize("kind", TYPES_OF_VERSION_1.values(), ids=TYPES_OF_VERSION_1)
def test_the_corpus_shows_every_field_and_word_of_version_1(kind: type[Event]) -> None:
    shown = [event for event in map(json.loads, OF_VERSION_1) if event["type"] == kind.type]
    for name, schema in properties_of_version_1(kind.__name__).items():
        values = [event[name] for event in shown]
        assert words_in(schema) <= set(values) if words_in(schema) else values, name
        if {"type": "null"} in schema.get("anyOf", []) and name != "connection_id":
            assert None in values, f"{name} is never null"
            assert values.count(None) < len(values), f"{name} is never told"


def test_the_corpus_of_today_is_read_too() -> None:
    for value in [*recorded(), *map(to_json, corpus())]:
        assert to_json(from_json(value)) == value


# A reader of version 1: the reader's own code over classes that have the fields of version 1 and no others.


def class_of_version_1(kind: type[Any]) -> type[Any]:
    known = properties_of_version_1(kind.__name__)
    hints = get_type_hints(kind)
    made = []
    for one in fields(kind):
        if one.name not in known:
            continue
        if one.default_factory is not MISSING:
            made.append((one.name, hints[one.name], field(default_factory=one.default_factory)))
        elif one.default is not MISSING:
            made.append((one.name, hints[one.name], field(default=one.default)))
        else:
            made.append((one.name, hints[one.name], field()))
    return make_dataclass(f"{kind.__name__}1", made, kw_only=True)


READERS_1: dict[str, Callable[[dict[str, Any], str, bool], Any]] = {
    word: _reader(class_of_version_1(kind)) for word, kind in TYPES_OF_VERSION_1.items()
}


def read_as_version_1(value: bytes) -> Any:
    found = json.loads(value)
    return READERS_1[found["type"]](found, "", found["schema_version"] > 1)


@given(any_event)
def test_a_reader_of_version_1_reads_what_is_written_today(event: Event) -> None:
    if event.type not in TYPES_OF_VERSION_1:
        return  # passed over as an unknown type
    read = read_as_version_1(to_json(event))
    for name in properties_of_version_1(type(event).__name__):
        assert getattr(read, name) == getattr(event, name)


def test_a_reader_of_version_1_knows_no_field_of_version_2() -> None:
    decision = next(event for event in corpus() if isinstance(event, DecisionEvent))
    decision.token_units = 3_600_000_000
    assert b'"token_units":3600000000' in to_json(decision)
    assert not hasattr(read_as_version_1(to_json(decision)), "token_units")


def test_nothing_of_version_1_was_renamed_or_removed_or_has_another_type() -> None:
    today = json_schema()["$defs"]
    compared = 0
    for kind, schema in SCHEMA_1["$defs"].items():
        for name in properties_of_version_1(kind):
            before, after = schema["properties"][name], today[kind]["properties"].get(name)
            assert after is not None, f"{kind}.{name} was removed"
            assert shape(after) == shape(before), f"{kind}.{name} has changed"
            assert words_in(before) <= words_in(after), f"{kind}.{name} has lost a word"
            compared += 1
    assert compared > 150


def shape(schema: Any) -> Any:
    """The type without its documentation and its words: there may be new words."""
    if isinstance(schema, dict):
        return {
            key: "words" if key == "enum" else shape(value)
            for key, value in schema.items()
            if key != "description"
        }
    return [shape(item) for item in schema] if isinstance(schema, list) else schema


def test_without_its_upgrade_version_1_would_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(UPGRADES) == {1}
    assert OLDEST_READ == 1
    monkeypatch.setattr("pidgate.events.reading.OLDEST_READ", 2)
    with pytest.raises(EventUnreadable, match="schema_version 1 is too old: versions 2 to 2 are read"):
        from_json(OF_VERSION_1[0])
