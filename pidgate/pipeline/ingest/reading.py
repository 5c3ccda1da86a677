"""Topic records -> events, checked like in the gateways' own reader (events/reading.py).

msgspec reads records in exactly this version's form, with all fields of the right type and no others. Every
record that it rejects goes to the gateways' reader, which knows all versions and gives the reason. The fast
reader may reject too much, but must never accept a record that the other rejects or reads differently; a test
compares both on generated corruption. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import reduce
from operator import attrgetter, or_
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION
from pidgate.events.reading import EventUnreadable, UnknownEventType, fields_of, from_json
from pidgate.pipeline.ingest.columns import DeadLetter, Good, Reason

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
LAST_MS: Final = 253_402_300_799_999
"""End of the year 9999; later days have no name."""


def read(value: bytes | None) -> Good | DeadLetter:
    """Read a record. Never raises, whatever the bytes."""
    return surely(value) or answer_to(value)


def surely(value: bytes | None) -> Good | None:
    """Return the event in these bytes; None if the slow reader must decide."""
    if value is None:
        return None
    try:
        return Good(_READER.decode(value), SCHEMA_VERSION)
    # UnicodeDecodeError and msgspec's errors are ValueErrors.
    except (ValueError, RecursionError):
        return None


def answer_to(value: bytes | None) -> Good | DeadLetter:
    """Read one record as gateways do. Never raises, whatever the bytes."""
    if value is None:
        return DeadLetter(Reason.MALFORMED.value, "a record without a value")
    given: dict[str, Any] = {}
    try:
        given = fields_of(value)
        return Good(from_json(value), json.loads(value)["schema_version"])
    except EventUnreadable as problem:
        reason = Reason.UNKNOWN_TYPE if isinstance(problem, UnknownEventType) else Reason.MALFORMED
        return DeadLetter(reason.value, str(problem), **_identity(given))


def _identity(given: dict[str, Any]) -> dict[str, Any]:
    """Return the identity as far as readable: an unreadable event still counts as arrived."""
    found: dict[str, Any] = {}
    for name in ("type", "gateway_id", "incarnation"):
        if type(given.get(name)) is str:
            found[name] = given[name]
    for name in ("seq", "wall_time_ms"):
        if type(given.get(name)) is int and _LOWEST <= given[name] <= _HIGHEST:
            found[name] = given[name]
    return found


def misplaced(
    found: Good, append_time_ms: int | None, now_ms: int, late_after_ms: int, ahead_ms: int
) -> DeadLetter | None:
    """Return the reason to reject an event: too late (if its append time is known), or from the future."""
    event = found.event
    # Timestamps may have any 64 bit value.
    age_ms = (now_ms if append_time_ms is None else append_time_ms) - event.wall_time_ms
    if (append_time_ms is not None and age_ms > late_after_ms) or event.wall_time_ms < 0:
        reason = Reason.LATE
    elif age_ms < -ahead_ms or event.wall_time_ms > LAST_MS:
        reason = Reason.FROM_THE_FUTURE
    else:
        return None
    verb = "read" if append_time_ms is None else "appended"
    detail = f"{verb} {age_ms} ms after its creation"
    identity = event.type, event.gateway_id, event.incarnation, event.seq, event.wall_time_ms
    return DeadLetter(reason.value, detail, *identity)


LONGEST_USE_MS: Final = 3_600_000
"""Bound of an id_usage interval, and of its age. Gateways publish one at least every 15 minutes."""


def cut_use(event: Any) -> bool:
    """Bound the interval of an id_usage event to the hour before it; return whether that changed it.

    A clock that was not set yet would make it half a million hours.
    """
    last_ms = min(max(event.last_ms, event.wall_time_ms - LONGEST_USE_MS), event.wall_time_ms)
    first_ms = min(max(event.first_ms, last_ms - LONGEST_USE_MS), last_ms)
    changed: bool = (first_ms, last_ms) != (event.first_ms, event.last_ms)
    if changed:
        event.first_ms, event.last_ms = first_ms, last_ms
    return changed


def columns_of(found: Sequence[Good], schema: pa.Schema) -> Mapping[str, pa.Array]:
    """Return the columns (schemas.event_schema) of events of one type."""
    events = [one.event for one in found]
    columns = {"schema_version": pa.array([one.schema_version for one in found], pa.int64())}
    for name in (one.name for one in fields(EVENT_TYPES[events[0].type])):
        kind = schema.field(name).type
        values = list(map(attrgetter(name), events))
        columns[name] = pa.array(msgspec.to_builtins(values) if pa.types.is_nested(kind) else values, kind)
    return columns


# msgspec classes for each event type and nested record, generated from the event definitions.

_SIMPLE: Mapping[object, object] = {
    int: Annotated[int, msgspec.Meta(ge=_LOWEST, le=_HIGHEST)],
    float: Annotated[float, msgspec.Meta(gt=-1e300, lt=1e300)],
}


def _strict(hint: Any) -> Any:
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if is_dataclass(hint):
        return _class_of(hint)
    inner = get_args(hint)
    if get_origin(hint) is list:
        return list[_strict(inner[0])]  # type: ignore[misc]
    if type(None) in inner:
        return _strict(inner[0]) | None
    return hint


def _class_of(made: Any, **more: Any) -> type[msgspec.Struct]:
    """Return a class with the fields of a dataclass."""
    hints = get_type_hints(made)
    told: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for one in fields(made):
        kind = _strict(hints[one.name])
        if one.default is not MISSING:
            told.append((one.name, kind, one.default))
        elif one.default_factory is not MISSING:
            told.append((one.name, kind, msgspec.field(default_factory=one.default_factory)))
        else:
            told.append((one.name, kind))
    return msgspec.defstruct(made.__name__, told, kw_only=True, forbid_unknown_fields=True, gc=False, **more)


def _event_class(word: str, made: Any) -> type[msgspec.Struct]:
    """Return the class of an event type, with a `type` attribute like the dataclass."""
    of_this_version = msgspec.defstruct("Version", [("schema_version", Literal[SCHEMA_VERSION])])
    return _class_of(made, bases=(of_this_version,), tag_field="type", tag=word, namespace={"type": word})


_READER: Final = msgspec.json.Decoder(reduce(or_, (_event_class(*one) for one in EVENT_TYPES.items())))
