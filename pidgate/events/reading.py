"""Reader of events: from JSON bytes back to an event. PURE.

The rules, for a rolling upgrade and for an archive:

- A newer version is read leniently. Unknown fields are ignored, and an unknown word (a new reason) is
  returned unchanged. A new version may add fields and types; it renames and removes nothing, and the fields
  of this version keep their types.
- An unknown type is an error of its own: the event is skipped, or goes to the dead letters.
- A missing field without a default, or a field of another type, makes the event unreadable, in any version.
  The error names the field.

An event that was read is always of this version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION, Event

Fields = dict[str, Any]
"""An event as a JSON object, before its fields are checked."""

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


class EventUnreadable(ValueError):
    """These bytes are not an event readable by this version. The message gives the reason."""


class UnknownEventType(EventUnreadable):
    """An event of an unknown type, written by a newer gateway. To be skipped."""


def fields_of(value: bytes) -> Fields:
    """Return an event's fields without checking each, for readers that need a few of them.

    Raises EventUnreadable.
    """
    try:
        found: Any = _DECODER.decode(value.decode("utf-8"))
        if b"\\u" in value:
            # An escaped half of a surrogate pair cannot be printed, sent or hashed.
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as problem:
        raise EventUnreadable(f"not JSON: {problem}") from problem
    if type(found) is not dict:
        raise EventUnreadable(f"not a JSON object but {_kind(found)}")
    version = found.get("schema_version")
    if type(version) is not int or not 1 <= version <= _HIGHEST:
        raise EventUnreadable(f"schema_version is {_shown(version)}")
    event: Fields = found
    return event


def from_json(value: bytes) -> Event:
    """Read the event in these bytes.

    Raises EventUnreadable with the reason, or its subclass UnknownEventType.
    """
    found = fields_of(value)
    word = found.get("type")
    if type(word) is not str:
        raise EventUnreadable(f"type is {_shown(word)}")
    event_type = EVENT_TYPES.get(word)
    if event_type is None:
        raise UnknownEventType(f"type {_shown(word)} is not known to schema_version {SCHEMA_VERSION}")
    event: Event = _READERS[event_type](found, f"{word}.", found["schema_version"] > SCHEMA_VERSION)
    return event


# Checks: each takes a value, its name for errors, and whether to be lenient; it returns the value.

_Check = Callable[[Any, str, bool], Any]


def _plain(kind: type[Any], wanted: str, value: Any, name: str, lenient: bool) -> Any:
    if type(value) is not kind or (kind is int and not _LOWEST <= value <= _HIGHEST):
        raise EventUnreadable(f"{name} must be {wanted}, not {_shown(value)}")
    return value


def _number(value: Any, name: str, lenient: bool) -> float:
    if type(value) not in (int, float) or not abs(value) < 1e300:
        raise EventUnreadable(f"{name} must be a finite number, not {_shown(value)}")
    return float(value)


def _word(words: frozenset[str], value: Any, name: str, lenient: bool) -> str:
    if type(value) is not str or (value not in words and not lenient):
        raise EventUnreadable(f"{name} must be one of {', '.join(sorted(words))}, not {_shown(value)}")
    return value


def _optional(check: _Check, value: Any, name: str, lenient: bool) -> Any:
    return None if value is None else check(value, name, lenient)


def _several(check: _Check, value: Any, name: str, lenient: bool) -> list[Any]:
    if type(value) is not list:
        raise EventUnreadable(f"{name} must be a list, not {_shown(value)}")
    return [check(item, f"{name}[]", lenient) for item in value]


def _record(read: Callable[[Fields, str, bool], Any], value: Any, name: str, lenient: bool) -> Any:
    if type(value) is not dict:
        raise EventUnreadable(f"{name} must be an object, not {_shown(value)}")
    return read(value, f"{name}.", lenient)


_SIMPLE: dict[object, _Check] = {
    int: partial(_plain, int, "a whole number of 64 bits"),
    str: partial(_plain, str, "text"),
    bool: partial(_plain, bool, "true or false"),
    float: _number,
}


def _check_of(hint: Any) -> _Check:
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return partial(_word, frozenset(inner))
    if get_origin(hint) is list:
        return partial(_several, _check_of(inner[0]))
    if type(None) in inner:
        return partial(_optional, _check_of(inner[0]))
    if is_dataclass(hint):
        return partial(_record, _reader(hint))
    raise TypeError(f"{hint} has no place in an event")


def _at_once(hint: Any) -> frozenset[type]:
    """Return the classes whose values need no further check, except that integers must fit into 64 bits."""
    kinds = set() if get_origin(hint) in (list, Literal) else {hint, *get_args(hint)}
    return frozenset(kind for kind in (str, bool, int, type(None)) if kind in kinds)


def _reader(made: Any) -> Callable[[Fields, str, bool], Any]:
    """Return the function that builds a `made` from a JSON object.

    Most values are accepted by their class alone.
    """
    hints = get_type_hints(made)
    checks = {field.name: _check_of(hints[field.name]) for field in fields(made)}
    at_once = {field.name: _at_once(hints[field.name]) for field in fields(made)}
    required = {
        field.name for field in fields(made) if field.default is MISSING and field.default_factory is MISSING
    }

    lowest, highest = _LOWEST, _HIGHEST

    def read(found: Fields, name: str, lenient: bool) -> Any:
        given = {}
        for key, value in found.items():
            classes = at_once.get(key)
            if classes is None:
                continue
            kind = value.__class__
            if kind in classes and (kind is not int or lowest <= value <= highest):
                given[key] = value
            else:
                given[key] = checks[key](value, name + key, lenient)
        if not required <= given.keys():
            raise EventUnreadable(f"{name}{min(required - given.keys())} is missing")
        return made(**given)

    return read


_READERS = {event_type: _reader(event_type) for event_type in EVENT_TYPES.values()}


def _not_json(constant: str) -> float:
    raise ValueError(f"{constant} is not a number of JSON")


# Shared, because json.loads creates a decoder for each call with an option.
_DECODER = json.JSONDecoder(parse_constant=_not_json)


def _kind(value: object) -> str:
    return {list: "a list", str: "text", type(None): "null"}.get(type(value), f"{type(value).__name__}")


def _shown(value: object) -> str:
    """Return the value for an error message, truncated because it comes from outside."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
