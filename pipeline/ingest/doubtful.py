"""Records that msgspec did not take at once (reading.py), read by the gateways' own reader.

Few: other versions, and what is no event. Pure.
"""

from __future__ import annotations

import json
from typing import Any

from pidgate.events.reading import (
    EventUnreadable,
    UnknownEventType,
    UnsupportedSchemaVersion,
    fields_of,
    from_json,
)
from pidgate.events.writing import to_json
from pidgate.pipeline.ingest.columns import Reason

Answer = dict[str, Any]
_NO_ANSWER: Answer = dict.fromkeys(
    (
        *("text", "schema_version", "type", "reason", "detail"),
        *("gateway_id", "incarnation", "seq", "wall_time_ms"),
    )
)
_REASONS: dict[type[EventUnreadable], Reason] = {
    UnknownEventType: Reason.UNKNOWN_TYPE,
    UnsupportedSchemaVersion: Reason.OLD_VERSION,
}
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


def answer_to(value: bytes | None) -> Answer:
    """Read one record as gateways do. Its bytes come from outside: never raises.

    With `text`, the event in it as this version writes it, and the version that it is of; or why it is none.
    """
    if value is None:
        return _NO_ANSWER | {"reason": Reason.MALFORMED, "detail": "a record without a value"}
    try:
        given = fields_of(value)
    except EventUnreadable as problem:
        return _NO_ANSWER | _refused(problem)
    known = _NO_ANSWER | _identity(given)
    try:
        event = from_json(value)
    except EventUnreadable as problem:
        return known | _refused(problem)
    return known | {"text": to_json(event).decode(), "schema_version": json.loads(value)["schema_version"]}


def _refused(problem: EventUnreadable) -> Answer:
    return {"reason": _REASONS.get(type(problem), Reason.MALFORMED).value, "detail": str(problem)}


def _identity(given: dict[str, Any]) -> Answer:
    """Return the identity, as far as it is readable: the event arrived, even if it cannot be read."""
    found: Answer = {}
    for name in ("type", "gateway_id", "incarnation"):
        if type(given.get(name)) is str:
            found[name] = given[name]
    for name in ("seq", "wall_time_ms"):
        if type(given.get(name)) is int and _LOWEST <= given[name] <= _HIGHEST:
            found[name] = given[name]
    return found
