"""The JSON schema (2020-12) of the events as they are written, derived from the definitions. Pure."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from inspect import getdoc
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION, Event

Schema = dict[str, Any]

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
        "description": " ".join((getdoc(made) or "").split()),
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
