"""Client quotas over Kafka's protocol, in plain words, for tests: built and read with the cold codec.

{"user": "alice"}                       an entity; None as a name is the default one
{"producer_ids_rate": 100.0, "x": None} operations; None removes
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pidgate.protocol import codec
from pidgate.protocol.headers import peek_request
from tests.support import raw

DESCRIBE, ALTER = 48, 49
EXACT, DEFAULT, ANY = 0, 1, 2

KEY = "producer_ids_rate"

Pairs = Sequence[tuple[str, str | None]]
EntityWords = Mapping[str, str | None] | Pairs
Operations = Mapping[str, float | None] | Sequence[tuple[str, float | None]]
Shown = dict[frozenset[tuple[str, str | None]], dict[str, float]]
"""Entity to its keys and values."""


def pairs(entity: EntityWords) -> Pairs:
    return list(entity.items()) if isinstance(entity, Mapping) else entity


def key_of(entity: EntityWords) -> frozenset[tuple[str, str | None]]:
    return frozenset(pairs(entity))


def alter(
    entries: Sequence[tuple[EntityWords, Operations]],
    *,
    version: int = 1,
    validate_only: bool = False,
    correlation_id: int = raw.CORRELATION_ID,
    client_id: str | None = "raw",
) -> bytes:
    """A framed AlterClientQuotas."""
    body = {
        "entries": [
            {
                "entity": _components(entity),
                "ops": [
                    {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
                    for key, value in (operations.items() if isinstance(operations, Mapping) else operations)
                ],
            }
            for entity, operations in entries
        ],
        "validate_only": validate_only,
    }
    return raw.request(ALTER, version, body, correlation_id=correlation_id, client_id=client_id)


def altered(
    outcomes: Sequence[tuple[EntityWords, int, str | None]],
    *,
    version: int = 1,
    throttle_time_ms: int = 0,
    correlation_id: int = raw.CORRELATION_ID,
) -> bytes:
    """A framed answer to an AlterClientQuotas."""
    entries = [
        {"error_code": code, "error_message": message, "entity": _components(entity)}
        for entity, code, message in outcomes
    ]
    body = {"throttle_time_ms": throttle_time_ms, "entries": entries}
    return raw.response(ALTER, version, body, correlation_id=correlation_id)


def describe(
    components: Iterable[tuple[str, int, str | None]] = (),
    *,
    version: int = 1,
    strict: bool = False,
    correlation_id: int = raw.CORRELATION_ID,
) -> bytes:
    """A framed DescribeClientQuotas; a component is (entity type, match type, match)."""
    wanted = [
        {"entity_type": entity_type, "match_type": match_type, "match": match}
        for entity_type, match_type, match in components
    ]
    body = {"components": wanted, "strict": strict}
    return raw.request(DESCRIBE, version, body, correlation_id=correlation_id)


def operations_in(frame: bytes) -> list[tuple[frozenset[tuple[str, str | None]], dict[str, float | None]]]:
    """What a framed AlterClientQuotas asks for."""
    body = codec.decode_request(frame, peek_request(frame, 4, len(frame))).to_dict()
    return [
        (
            _key(entry),
            {op["key"]: None if op["remove"] else op["value"] for op in entry["ops"]},
        )
        for entry in body["entries"]
    ]


def outcomes_in(answer: bytes, *, version: int = 1) -> list[tuple[frozenset[tuple[str, str | None]], int]]:
    """(entity, error code) of an AlterClientQuotas answer without its size prefix, in its order."""
    return [(_key(entry), entry["error_code"]) for entry in raw.decoded(ALTER, version, answer)["entries"]]


def shown_in(answer: bytes, *, version: int = 1) -> Shown:
    """What a DescribeClientQuotas answer without its size prefix shows; it must be no error."""
    body = raw.decoded(DESCRIBE, version, answer)
    assert body["error_code"] == 0, body
    found: Shown = {}
    for entry in body["entries"]:
        values = [(value["key"], value["value"]) for value in entry["values"]]
        assert len(dict(values)) == len(values), entry
        assert _key(entry) not in found, entry
        found[_key(entry)] = dict(values)
    return found


def _components(entity: EntityWords) -> list[dict[str, Any]]:
    return [{"entity_type": entity_type, "entity_name": name} for entity_type, name in pairs(entity)]


def _key(entry: Mapping[str, Any]) -> frozenset[tuple[str, str | None]]:
    return frozenset((part["entity_type"], part["entity_name"]) for part in entry["entity"])
