"""Fast conversion of events to JSON bytes: gateways do this for every decision, alongside the traffic.

A writer is generated for each type from its fields' types, as dataclasses generates `__init__`: one f-string
over all fields costs half as much as passing a dict to `json`. The output is plain ASCII JSON with the fields
in the order of the definitions, beginning with schema_version and type. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from json.encoder import encode_basestring_ascii
from typing import Any, Final, Literal, get_origin, get_type_hints

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION, Event

_IN_TEXT: Final[dict[object, str]] = {
    int: "{integer(event.NAME)}",
    str: "{text(event.NAME)}",
    bool: "{'true' if event.NAME else 'false'}",
    int | None: "{'null' if event.NAME is None else integer(event.NAME)}",
    list[int]: "[{','.join(map(integer, event.NAME))}]",
    str | None: "{'null' if event.NAME is None else text(event.NAME)}",
}
"""f-string expressions by field type; all other types are passed to `json`."""


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        # Not asdict, which copies recursively: a topology of thousands of partitions would stall traffic.
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} has no place in an event")


_any = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode


def prefix_of(event_type: type[Event]) -> bytes:
    """Return the common beginning of all events of this type as JSON, by which a reader can skip them."""
    return f'{{"schema_version":{SCHEMA_VERSION},"type":"{event_type.type}",'.encode()


def _writer(event_type: type[Event]) -> Callable[[Any], str]:
    hints = get_type_hints(event_type)
    parts = []
    for field in fields(event_type):
        hint = str if get_origin(hints[field.name]) is Literal else hints[field.name]
        in_text = _IN_TEXT.get(hint, "{json(event.NAME)}")
        parts.append(f'"{field.name}":{in_text.replace("NAME", field.name)}')
    beginning = prefix_of(event_type).decode().replace("{", "{{")
    source = f"lambda event: f'''{beginning}{','.join(parts)}}}}}'''"
    # int.__repr__ also writes a bool as a number, and costs a quarter of a format with "d".
    names = {"text": encode_basestring_ascii, "integer": int.__repr__, "json": _any}
    made: Callable[[Any], str] = eval(source, names)
    return made


_WRITERS: Final = {event_type: _writer(event_type) for event_type in EVENT_TYPES.values()}


def to_json(event: Event) -> bytes:
    """Return the event as one JSON object, without a newline.

    Raises TypeError or ValueError for a field value that its type does not allow (None, NaN).
    """
    return _WRITERS[type(event)](event).encode("ascii")


def key_of(event: Event) -> str:
    """Return the record key: the user, or the gateway's id without a user.

    One key means one partition and one order.
    """
    return event.user or event.gateway_id
