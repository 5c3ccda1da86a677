"""Records rejected by the fast msgspec reader (reading.py), read by the gateways' own reader.

There are few: events of a newer version, and invalid records. Pure.
"""

from __future__ import annotations

import json
from typing import Any

from pidgate.events.reading import EventUnreadable, UnknownEventType, fields_of, from_json
from pidgate.pipeline.ingest.columns import DeadLetter, Good, Reason

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


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
