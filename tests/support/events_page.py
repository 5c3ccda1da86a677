"""What docs/ holds of the events' definitions: the fields in docs/reference/events.md, and the JSON schema (2020-12).

`python -m tests.support.events_page` writes both anew (`make docs`); a test holds them to the definitions.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import getdoc
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION, Event
from tests.support.architecture_page import generated
from tests.support.import_graph import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "events.md"
SCHEMA_FILE: Final = ROOT / "docs" / "reference" / "events.schema.json"

Schema = dict[str, Any]

_MOST_WORDS: Final = 8
"""A field with more words lists them in its meaning."""

_SIMPLE: dict[object, str] = {str: "string", bool: "boolean", float: "number", NoneType: "null"}


def json_schema() -> Schema:
    """One of all types. Further fields are allowed: newer versions add some, and readers ignore them."""
    records: dict[str, Schema] = {}
    types = {kind.__name__: _event(kind, records) for kind in EVENT_TYPES.values()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Events of pidgate, version {SCHEMA_VERSION}",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in types],
        "$defs": types | records,
    }


def text_of(annotated: object) -> str:
    """A field's documentation."""
    return str(get_args(annotated)[1]) if get_origin(annotated) is Annotated else ""


def _event(kind: type[Event], records: dict[str, Schema]) -> Schema:
    schema = _object(kind, records)
    beginning = {"schema_version": {"const": SCHEMA_VERSION}, "type": {"const": kind.type}}
    schema["properties"] = beginning | schema["properties"]
    # Written in any case; only in events from elsewhere may one with a default be missing.
    schema["required"] = list(schema["properties"])
    return schema


def _object(made: Any, records: dict[str, Schema]) -> Schema:
    hints = get_type_hints(made, include_extras=True)
    properties = {}
    for field in fields(made):
        annotated = hints[field.name]
        properties[field.name] = {"description": text_of(annotated)} | _of(get_args(annotated)[0], records)
        if field.default is not MISSING:
            properties[field.name]["default"] = field.default
    return {
        "description": _words(made),
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def _of(hint: Any, records: dict[str, Schema]) -> Schema:
    if hint is int:
        return {"type": "integer", "format": "int64"}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return {"enum": list(inner)}
    if get_origin(hint) is list:
        return {"type": "array", "items": _of(inner[0], records)}
    if is_dataclass(hint):
        name = hint.__name__  # type: ignore[union-attr]
        records[name] = _object(hint, records)
        return {"$ref": f"#/$defs/{name}"}
    return {"anyOf": [_of(option, records) for option in inner]}


def events_described() -> str:
    """Return the sections of all events, and of the records in them."""
    records: dict[str, type] = {}
    parts = ["## Every event\n", f"\n{_words(Event)}\n", *_table(Event, {}, envelope=True)]
    for kind in EVENT_TYPES.values():
        parts += [f"\n## `{kind.type}`\n", f"\n{_words(kind)}\n", *_table(kind, records)]
    for name, made in records.items():
        parts += [f"\n### {name}\n", f"\n{_words(made)}\n", *_table(made, records)]
    return "".join(parts).rstrip()


def versions() -> str:
    """Return which versions are written and read."""
    return (
        f"These are events of version {SCHEMA_VERSION}; each value begins "
        f'`{{"schema_version":{SCHEMA_VERSION},"type":"<type>",`, so that a reader can skip types by their first '
        "bytes. Gateways read the fields they know of newer versions too, so a cluster's gateways can be upgraded one "
        "by one."
    )


def _words(made: Any) -> str:
    return " ".join((getdoc(made) or "").split())


def _table(made: Any, records: dict[str, type], *, envelope: bool = False) -> Iterator[str]:
    yield "\n| field | type | meaning |\n| --- | --- | --- |\n"
    if envelope:
        yield f"| `schema_version` | integer | {SCHEMA_VERSION} |\n"
        yield "| `type` | text | One of the words that head the sections below |\n"
    hints = get_type_hints(made, include_extras=True)
    shared = {field.name for field in fields(Event)} if issubclass(made, Event) and not envelope else set()
    for field in fields(made):
        if field.name in shared:
            continue
        annotated = hints[field.name]
        meaning = text_of(annotated)
        if field.default is not MISSING and field.default not in ("", None, False):
            meaning += f" (default {field.default})"
        yield f"| `{field.name}` | {_type(get_args(annotated)[0], records)} | {meaning} |\n"


def _type(hint: Any, records: dict[str, type]) -> str:
    names = {int: "integer", str: "text", bool: "boolean", float: "number", NoneType: "null"}
    if hint in names:
        return names[hint]
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        if len(inner) > _MOST_WORDS:
            return "one word"
        return ", ".join(f"`{word}`" for word in inner)
    if get_origin(hint) is list:
        return f"list of {_type(inner[0], records)}"
    if is_dataclass(hint):
        name = str(hint.__name__)  # type: ignore[union-attr]
        records[name] = hint  # type: ignore[assignment]
        return f"[{name}](#{name.lower()})"
    return " or ".join(_type(option, records) for option in inner)


PARTS: Final[Mapping[str, Callable[[], str]]] = {"versions": versions, "events": events_described}


def page(written: str) -> str:
    """Return the page with every part between its marks drawn anew."""
    return generated(written, PARTS)


def schema_file() -> str:
    """Return docs/reference/events.schema.json."""
    return json.dumps(json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    SCHEMA_FILE.write_text(schema_file(), "utf-8")
