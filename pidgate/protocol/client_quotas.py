"""AlterClientQuotas (49) and DescribeClientQuotas (48), KIP-546: parse, filter and re-encode. PURE.

Parsed by hand instead of by the codec: one request may set tens of thousands of quotas, and decoding blocks
the event loop. Fields that are not inspected stay raw bytes. This module must not know the meaning of a key.

Source: AlterClientQuotas*.json, DescribeClientQuotas*.json; ClientQuotasImage for filter matching.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from pidgate.protocol.errors import FrameTooLarge, UnsupportedVersion
from pidgate.protocol.frames import Buffer, Reader, array_count, encode_string, framed
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.versions import speaks
from pidgate.protocol.work import MOST_ELEMENTS, Steps, Walk

DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49

USER: Final = "user"
GATEWAY: Final = "pidgate"
"""Entity type of a question that a gateway answers alone: no broker knows it."""
OWN: Final = "my"
"""The only name of it: the user of the connection."""

POLICY_VIOLATION: Final = 44
"""Kafka's error code for well-formed requests that a policy rejects."""

MAX_REQUEST_BYTES: Final = 262_144
"""Longest request of these two APIs that is parsed: 500 users with 500 character names.

See work.MOST_ELEMENTS.
"""

MAX_ANSWER_BYTES: Final = 4_194_304
"""Longest response of these two APIs that is parsed."""

_FLEXIBLE_FROM: Final = 1
_REMEDY: Final = "set fewer quotas with one request"

_REQUEST_HEAD = Struct(">hhi")
_I16 = Struct(">h")
_I32 = Struct(">i")
_F64 = Struct(">d")

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) of each component, ordered by type. The name None is the default entity.

If a type is repeated, the last one wins, as in Kafka, which keeps a map.
"""


class Operation(NamedTuple):
    """One key of an entry, set or removed."""

    key: str
    value: float
    remove: bool
    raw: bytes
    """The original bytes."""


class Entry(NamedTuple):
    """The operations of an AlterClientQuotas on one entity."""

    entity: Entity
    components: int
    """Components in the request; more than in the entity if a type was repeated."""
    raw_entity: bytes
    """The original bytes of the component array; the response repeats them."""
    operations: list[Operation]


class AlterRequest(NamedTuple):
    """An AlterClientQuotas request."""

    api_version: int
    correlation_id: int
    head: bytes
    """The original request header."""
    entries: list[Entry]
    validate_only: bool


class Outcome(NamedTuple):
    """The result for one entity."""

    error_code: int
    error_message: str | None


class AlterAnswer(NamedTuple):
    """An AlterClientQuotas response. Kafka reports once per entity, in no defined order."""

    throttle_time_ms: int
    outcomes: dict[Entity, Outcome]


# AlterClientQuotas


def read_alter(buf: Buffer, head: RequestHead) -> AlterRequest:
    """Read the request in `buf`. Raises KafkaProtocolError."""
    reader = _request(buf, head, ALTER_CLIENT_QUOTAS)
    entries = [_entry(reader) for _ in range(reader.count(1, nullable=True))]
    validate_only = reader.i8() != 0
    _finish(reader)
    raw_head = bytes(buf[head.start : head.body])
    return AlterRequest(head.api_version, head.correlation_id, raw_head, entries, validate_only)


def alter_request(
    request: AlterRequest, entries: Iterable[tuple[Entry, Sequence[Operation]]], *, validate_only: bool
) -> bytes:
    """Return the same request, framed, reduced to these entries and operations."""
    flexible = request.api_version >= _FLEXIBLE_FROM
    tags = b"\x00" if flexible else b""
    parts: list[bytes] = []
    count = 0
    for entry, operations in entries:
        count += 1
        parts += (entry.raw_entity, array_count(len(operations), flexible=flexible))
        parts += [operation.raw for operation in operations]
        parts.append(tags)
    return framed(request.head, array_count(count, flexible=flexible), *parts, bytes((validate_only,)), tags)


def removal(operation: Operation) -> Operation:
    """Return the operation that removes the same key."""
    raw = operation.raw
    at = (1 if raw[0] else 2) + len(operation.key) + _F64.size
    return operation._replace(remove=True, raw=raw[:at] + b"\x01" + raw[at + 1 :])


def read_alter_answer(buf: Buffer, start: int, end: int, api_version: int) -> AlterAnswer:
    """Parse the broker's response. Raises KafkaProtocolError."""
    reader = _answer(buf, start, end, api_version)
    throttle_time_ms = reader.i32()
    outcomes: dict[Entity, Outcome] = {}
    for _ in range(reader.count(1, nullable=True)):
        outcome = Outcome(reader.i16(), reader.nullable_string())
        entity, _components = _entity(reader)
        reader.skip_tags()
        outcomes[entity] = outcome
    _finish(reader)
    return AlterAnswer(throttle_time_ms, outcomes)


def alter_answer(
    request: AlterRequest, throttle_time_ms: int, outcomes: Sequence[tuple[Entry, Outcome]]
) -> bytes:
    """Return the framed response to this request."""
    flexible = request.api_version >= _FLEXIBLE_FROM
    tags = b"\x00" if flexible else b""
    parts: list[bytes] = []
    for entry, outcome in outcomes:
        message = encode_string(outcome.error_message, flexible=flexible)
        parts += (_I16.pack(outcome.error_code), message, entry.raw_entity, tags)
    head = _I32.pack(request.correlation_id) + tags + _I32.pack(throttle_time_ms)
    return framed(head, array_count(len(outcomes), flexible=flexible), *parts, tags)


# DescribeClientQuotas


@dataclass(frozen=True, slots=True)
class UserFilter:
    """The part of a DescribeClientQuotas filter that matches users without a client id.

    `names` is None for every user including the default user; otherwise the listed users (None: the default
    user).
    """

    names: frozenset[str | None] | None

    def matches(self, user: str | None) -> bool:
        """Return whether the filter matches this user (None: the default user)."""
        return self.names is None or user in self.names


@dataclass(frozen=True, slots=True)
class GatewayFilter:
    """A question to the gateway itself. `is_own`: about the connection's own user, and nothing else."""

    is_own: bool


UserValues = Mapping[str | None, Mapping[str, float]]
"""user (None: the default user) -> key -> value."""

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


def read_filter(buf: Buffer, head: RequestHead) -> UserFilter | GatewayFilter | None:
    """Parse the filter of a DescribeClientQuotas request; None if it matches no user without a client id.

    Also None for a filter that Kafka rejects. An entity must have every component of the filter, and with
    `strict` no others. Raises KafkaProtocolError.
    """
    reader = _request(buf, head, DESCRIBE_CLIENT_QUOTAS)
    components: list[tuple[str | None, int, str | None]] = []
    for _ in range(reader.count(1, nullable=True)):
        components.append((reader.nullable_string(), reader.i8(), reader.nullable_string()))
        reader.skip_tags()
    strict = reader.i8() != 0
    _finish(reader)
    if any(entity_type == GATEWAY for entity_type, *_ in components):
        return GatewayFilter(components == [(GATEWAY, _EXACT, OWN)])
    if not components:
        return None if strict else UserFilter(None)
    if len(components) > 1 or components[0][0] != USER:
        return None
    _, match_type, match = components[0]
    if match_type == _EXACT:
        return None if match is None else UserFilter(frozenset((match,)))
    if match is not None or match_type not in (_DEFAULT, _SPECIFIED):
        return None
    return UserFilter(frozenset((None,)) if match_type == _DEFAULT else None)


def adding_user_values(buf: Buffer, start: int, end: int, api_version: int, values: UserValues) -> Walk:
    """Return a Walk that adds these values to a DescribeClientQuotas response, or replaces those of the same key.

    Its result is the framed response, or None if the broker returned an error and the response stays
    unchanged. Raises KafkaProtocolError.
    """
    return Walk(_adding_user_values(_answer(buf, start, end, api_version), start, values))


def _adding_user_values(reader: Reader, start: int, values: UserValues) -> Steps:
    buf, flexible = reader.buf, reader.flexible
    reader.skip(4)  # throttle_time_ms
    if reader.i16() != 0:
        return None
    reader.skip_string()
    head_end = reader.pos
    count = reader.count(1, nullable=True)
    missing = dict(values)
    parts: list[bytes] = []
    kept = reader.pos
    for _ in range(count):
        entity, _components = _entity(reader)
        at = reader.pos
        value_count = reader.count(1, nullable=True)
        is_user = len(entity) == 1 and entity[0][0] == USER and entity[0][1] in missing
        ours = missing.pop(entity[0][1]) if is_user else {}
        others: list[bytes] = []
        for _ in range(value_count):
            begin = reader.pos
            if not ours:
                reader.skip_string()
                key = None
            else:
                key = reader.nullable_string()
            reader.skip(_F64.size)
            reader.skip_tags()
            if ours and key not in ours:
                others.append(bytes(buf[begin : reader.pos]))
        if ours:
            parts += (bytes(buf[kept:at]), array_count(len(others) + len(ours), flexible=flexible))
            parts += (_values(ours, flexible), *others)
            kept = reader.pos
        reader.skip_tags()
        yield
    parts.append(reader.copy_since(kept))
    tail = reader.pos
    _finish(reader)
    for user, ours in missing.items():
        parts.append(_user_entry(user, ours, flexible))
        yield
    new_count = array_count(count + len(missing), flexible=flexible)
    return framed(buf[start:head_end], new_count, *parts, buf[tail : reader.end])


def own_request(correlation_id: int, client_id: str) -> bytes:
    """Return a framed DescribeClientQuotas that asks a gateway about the connection's own user."""
    return framed(
        _REQUEST_HEAD.pack(DESCRIBE_CLIENT_QUOTAS, _FLEXIBLE_FROM, correlation_id),
        encode_string(client_id, flexible=False),
        b"\x00",
        array_count(1, flexible=True),
        encode_string(GATEWAY, flexible=True) + bytes((_EXACT,)) + encode_string(OWN, flexible=True),
        b"\x00\x00\x00",
    )


def read_described(buf: Buffer) -> tuple[int, str]:
    """Return error code and message of the response to an own_request. Raises KafkaProtocolError."""
    reader = _answer(buf, 0, len(buf), _FLEXIBLE_FROM)
    reader.skip(4)
    return reader.i16(), reader.nullable_string() or ""


def describe_refused(buf: Buffer, start: int, api_version: int, error_code: int, message: str) -> bytes:
    """Return a response with this error or message and no entries. `start`: of the correlation id in `buf`."""
    flexible = api_version >= _FLEXIBLE_FROM
    tags = b"\x00" if flexible else b""
    null = b"\x00" if flexible else b"\xff\xff\xff\xff"
    no_entries = null if error_code else array_count(0, flexible=flexible)
    return framed(
        bytes(buf[start : start + 4]),
        tags,
        _I32.pack(0),
        _I16.pack(error_code),
        encode_string(message, flexible=flexible),
        no_entries,
        tags,
    )


def _user_entry(user: str | None, values: Mapping[str, float], flexible: bool) -> bytes:
    tags = b"\x00" if flexible else b""
    one, count = array_count(1, flexible=flexible), array_count(len(values), flexible=flexible)
    name = encode_string(user, flexible=flexible)
    head = (one, encode_string(USER, flexible=flexible), name, tags, count)
    return b"".join((*head, _values(values, flexible), tags))


def _values(values: Mapping[str, float], flexible: bool) -> bytes:
    tags = b"\x00" if flexible else b""
    return b"".join(
        encode_string(key, flexible=flexible) + _F64.pack(value) + tags for key, value in values.items()
    )


# Both


def _request(buf: Buffer, head: RequestHead, api_key: int) -> Reader:
    if head.api_key != api_key or not speaks(api_key, head.api_version):
        raise UnsupportedVersion(head.api_key, head.api_version)
    if (size := head.end - head.start) > MAX_REQUEST_BYTES:
        raise FrameTooLarge(f"{size} bytes of client quotas, the limit is {MAX_REQUEST_BYTES}: {_REMEDY}")
    flexible = head.api_version >= _FLEXIBLE_FROM
    return Reader(buf, head.body, head.end, flexible=flexible, most_elements=MOST_ELEMENTS)


def _answer(buf: Buffer, start: int, end: int, api_version: int) -> Reader:
    """Return a reader positioned after the response header."""
    if end - start > MAX_ANSWER_BYTES:
        raise FrameTooLarge(f"{end - start} bytes of client quotas, the limit is {MAX_ANSWER_BYTES}")
    reader = Reader(buf, start, end, flexible=api_version >= _FLEXIBLE_FROM)
    reader.skip(4)
    reader.skip_tags()
    return reader


def _finish(reader: Reader) -> None:
    reader.skip_tags()
    reader.finish()


def _entry(reader: Reader) -> Entry:
    first = reader.pos
    entity, components = _entity(reader)
    raw_entity = reader.copy_since(first)
    operations = []
    for _ in range(reader.count(1, nullable=True)):
        first = reader.pos
        key, value, remove = reader.nullable_string() or "", reader.f64(), reader.i8() != 0
        reader.skip_tags()
        operations.append(Operation(key, value, remove, reader.copy_since(first)))
    reader.skip_tags()
    return Entry(entity, components, raw_entity, operations)


def _entity(reader: Reader) -> tuple[Entity, int]:
    """Read an entity and the number of components on the wire."""
    count = reader.count(1, nullable=True)
    found: dict[str, str | None] = {}
    for _ in range(count):
        entity_type = reader.nullable_string() or ""
        found[entity_type] = reader.nullable_string()
        reader.skip_tags()
    if count == 1:
        return ((entity_type, found[entity_type]),), 1
    return tuple(sorted(found.items(), key=lambda component: component[0])), count
