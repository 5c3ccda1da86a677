"""The schema and the page in docs/ are those of the definitions; what is written conforms to the schema."""

import json
from dataclasses import fields
from typing import Any

from hypothesis import given

from pidgate.events.definitions import EVENT_TYPES, Event
from pidgate.events.writing import to_json
from tests.support.events_page import PAGE, SCHEMA_FILE, json_schema, page, schema_file
from tests.unit.events.made_up import any_event

SCHEMA = json_schema()
REGENERATE = "run `make docs`"


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """As much of JSON Schema as the events' schema uses."""
    if "$ref" in schema:
        return conforms(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")])
    if "const" in schema:
        return bool(value == schema["const"])
    if "enum" in schema:
        return value in schema["enum"]
    if "anyOf" in schema:
        return any(conforms(value, option) for option in schema["anyOf"])
    if "oneOf" in schema:
        return sum(conforms(value, option) for option in schema["oneOf"]) == 1
    if schema["type"] == "array":
        return type(value) is list and all(conforms(item, schema["items"]) for item in value)
    if schema["type"] == "object":
        return (
            type(value) is dict
            and set(schema["required"]) <= value.keys()
            and all(
                conforms(value[key], inner) for key, inner in schema["properties"].items() if key in value
            )
        )
    simple = {"integer": (int,), "number": (int, float), "string": (str,), "boolean": (bool,)}
    return type(value) in simple.get(schema["type"], (type(None),))


@given(any_event)
def test_every_written_event_conforms_to_the_schema(event: Event) -> None:
    assert conforms(json.loads(to_json(event)), SCHEMA)


def test_the_schema_in_docs_is_the_generated_one() -> None:
    written = SCHEMA_FILE.read_text("utf-8")
    assert written == schema_file(), REGENERATE


def test_the_page_in_docs_is_the_generated_one() -> None:
    written = PAGE.read_text("utf-8")
    assert page(written) == written, REGENERATE


def test_every_field_is_documented_once() -> None:
    written = PAGE.read_text("utf-8")
    for kind in EVENT_TYPES.values():
        section = written.split(f"\n## `{kind.type}`\n")[1].split("\n##")[0]
        for field in fields(kind):
            own = field.name not in {shared.name for shared in fields(Event)}
            assert section.count(f"\n| `{field.name}` |") == own, field.name
            described = SCHEMA["$defs"][kind.__name__]["properties"][field.name]["description"]
            assert described
            assert described in written
