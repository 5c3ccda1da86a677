"""AlterClientQuotas (49) and DescribeClientQuotas (48), KIP-546: read, cut, and put together again.

By hand and not with the codec: an administrator may set tens of thousands of quotas with one request, and reading
costs the event loop's time. What is not looked at is kept as the bytes it came in. Which keys mean what is not
known here.

Source: AlterClientQuotas*.json, DescribeClientQuotas*.json; ClientQuotasImage for what a filter matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from pidgate.protocol.errors import FrameTooLarge, MalformedFrame, TruncatedFrame, UnsupportedVersion
from pidgate.protocol.frames import Buffer, encode_string, framed, read_uvarint, skip_tags, uvarint
from pidgate.protocol.headers import peek_request
from pidgate.protocol.versions import speaks

DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49

USER: Final = "user"

POLICY_VIOLATION: Final = 44
"""Kafka's error code for what is well formed and not allowed here."""

MAX_REQUEST_BYTES: Final = 1_048_576
"""Longest AlterClientQuotas that should be acted upon: some 12,000 users, a tenth of a second for the event loop."""

MAX_READ_BYTES: Final = 4 * MAX_REQUEST_BYTES
"""Longest request or answer of these two that is read at all."""

_FLEXIBLE_FROM: Final = 1

_I16 = Struct(">h")
_I32 = Struct(">i")
_F64 = Struct(">d")

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) of each component, ordered by type; the name None stands for the default one.

Of a type that is given twice the last one holds, as in Kafka, where it is a map.
"""


class Operation(NamedTuple):
    """One key of an entry: set to a value, or removed."""

    key: str
    value: float
    remove: bool
    raw: bytes
    """As it came."""


class Entry(NamedTuple):
    """What an AlterClientQuotas asks for one entity."""

    entity: Entity
    components: int
    """How many there were; more than the entity has when a type was given twice."""
    raw_entity: bytes
    """The array of components as it came; in an answer it is written in the same way."""
    operations: list[Operation]


class AlterRequest(NamedTuple):
    """An AlterClientQuotas request."""

    api_version: int
    correlation_id: int
    head: bytes
    """The request header as it came."""
    entries: list[Entry]
    validate_only: bool


class Outcome(NamedTuple):
    """What became of one entity."""

    error_code: int
    error_message: str | None


class AlterAnswer(NamedTuple):
    """An AlterClientQuotas answer. Kafka answers once per entity, in no certain order."""

    throttle_time_ms: int
    outcomes: dict[Entity, Outcome]


# AlterClientQuotas


def read_alter(buf: Buffer, start: int, end: int) -> AlterRequest:
    """The request buf[start:end]. Raises KafkaProtocolError."""
    head = peek_request(buf, start, end)
    if head.api_key != ALTER_CLIENT_QUOTAS or not speaks(head.api_key, head.api_version):
        raise UnsupportedVersion(head.api_key, head.api_version)
    data = _checked(buf, head.body, end)
    flexible = head.api_version >= _FLEXIBLE_FROM
    with _bounds():
        count, pos = _count(data, 0, flexible)
        entries = []
        for _ in range(count):
            entry, pos = _entry(data, pos, flexible)
            entries.append(entry)
        validate_only = data[pos] != 0
        _finish(data, pos + 1, flexible)
    return AlterRequest(
        head.api_version, head.correlation_id, bytes(buf[start : head.body]), entries, validate_only
    )


def alter_request(
    request: AlterRequest, entries: Iterable[tuple[Entry, Sequence[Operation]]], *, validate_only: bool
) -> bytes:
    """The same request, framed, with these entries and of each these operations."""
    flexible = request.api_version >= _FLEXIBLE_FROM
    tags = b"\x00" if flexible else b""
    parts: list[bytes] = []
    count = 0
    for entry, operations in entries:
        count += 1
        parts.append(entry.raw_entity)
        parts.append(_array_count(len(operations), flexible))
        parts += [operation.raw for operation in operations]
        parts.append(tags)
    return framed(request.head, _array_count(count, flexible), *parts, bytes((validate_only,)), tags)


def read_alter_answer(buf: Buffer, start: int, end: int, api_version: int) -> AlterAnswer:
    """What the broker says. Raises KafkaProtocolError."""
    flexible = api_version >= _FLEXIBLE_FROM
    data = _checked(buf, start, end)
    outcomes: dict[Entity, Outcome] = {}
    with _bounds():
        pos = _after_answer_head(data, flexible)
        throttle_time_ms: int = _I32.unpack_from(data, pos)[0]
        count, pos = _count(data, pos + 4, flexible)
        for _ in range(count):
            error_code: int = _I16.unpack_from(data, pos)[0]
            error_message, pos = _text(data, pos + 2, flexible)
            entity, _components, pos = _entity(data, pos, flexible)
            if flexible:
                pos = skip_tags(data, pos, len(data))
            outcomes[entity] = Outcome(error_code, error_message)
        _finish(data, pos, flexible)
    return AlterAnswer(throttle_time_ms, outcomes)


def alter_answer(
    request: AlterRequest, throttle_time_ms: int, outcomes: Sequence[tuple[Entry, Outcome]]
) -> bytes:
    """The framed answer to this request."""
    flexible = request.api_version >= _FLEXIBLE_FROM
    tags = b"\x00" if flexible else b""
    parts: list[bytes] = []
    for entry, outcome in outcomes:
        message = encode_string(outcome.error_message, flexible=flexible)
        parts += (_I16.pack(outcome.error_code), message, entry.raw_entity, tags)
    head = _I32.pack(request.correlation_id) + tags + _I32.pack(throttle_time_ms)
    return framed(head, _array_count(len(outcomes), flexible), *parts, tags)


# DescribeClientQuotas


@dataclass(frozen=True, slots=True)
class UserFilter:
    """What a DescribeClientQuotas asks for, as far as entities go that are a user and nothing else.

    `names` None: every user, the default user among them; else those named (None: the default user).
    """

    names: frozenset[str | None] | None

    def matches(self, user: str | None) -> bool:
        """Whether the quota of this user, or of the default user (None), is asked for."""
        return self.names is None or user in self.names


_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


def read_user_filter(buf: Buffer, start: int, end: int) -> UserFilter | None:
    """The filter of a DescribeClientQuotas request; None: it matches no entity that is a user alone.

    None, too, for a filter that Kafka refuses. An entity must have every component of the filter; with `strict` no
    others. Raises KafkaProtocolError.
    """
    head = peek_request(buf, start, end)
    if head.api_key != DESCRIBE_CLIENT_QUOTAS or not speaks(head.api_key, head.api_version):
        raise UnsupportedVersion(head.api_key, head.api_version)
    data = _checked(buf, head.body, end)
    flexible = head.api_version >= _FLEXIBLE_FROM
    components: list[tuple[str | None, int, str | None]] = []
    with _bounds():
        count, pos = _count(data, 0, flexible)
        for _ in range(count):
            entity_type, pos = _text(data, pos, flexible)
            match_type = data[pos]
            match, pos = _text(data, pos + 1, flexible)
            if flexible:
                pos = skip_tags(data, pos, len(data))
            components.append((entity_type, match_type, match))
        strict = data[pos] != 0
        _finish(data, pos + 1, flexible)
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


def with_user_values(
    buf: Buffer, start: int, end: int, api_version: int, key: str, values: Mapping[str | None, float]
) -> bytes | None:
    """A DescribeClientQuotas answer, framed, with this key's value for each of these users (None: the default user).

    None when the broker answered an error: then it stays as it came. Raises KafkaProtocolError.
    """
    flexible = api_version >= _FLEXIBLE_FROM
    data = _checked(buf, start, end)
    with _bounds():
        pos = _after_answer_head(data, flexible) + 4  # throttle_time_ms
        if _I16.unpack_from(data, pos)[0] != 0:
            return None
        _message, pos = _text(data, pos + 2, flexible)
        head_end = pos
        count, pos = _count(data, pos, flexible)
        first = pos
        missing = dict(values)
        parts: list[bytes] = []
        kept = first
        for _ in range(count):
            entity, _components, at = _entity(data, pos, flexible)
            value_count, to = _count(data, at, flexible)
            pos = _after_values(data, to, value_count, flexible)
            if len(entity) == 1 and entity[0][0] == USER and entity[0][1] in missing:
                value = missing.pop(entity[0][1])
                ours = _value(key, value, flexible)
                parts += (data[kept:at], _array_count(value_count + 1, flexible), ours)
                kept = to
            if flexible:
                pos = skip_tags(data, pos, len(data))
        _finish(data, pos, flexible)
    parts.append(data[kept:pos])
    parts += [_user_entry(user, _value(key, value, flexible), flexible) for user, value in missing.items()]
    return framed(data[:head_end], _array_count(count + len(missing), flexible), *parts, data[pos:])


def describe_refused(buf: Buffer, start: int, api_version: int, error_code: int, message: str) -> bytes:
    """An answer with this error in the place of the broker's answer that begins at `start`."""
    flexible = api_version >= _FLEXIBLE_FROM
    tags = b"\x00" if flexible else b""
    no_entries = b"\x00" if flexible else b"\xff\xff\xff\xff"
    return framed(
        bytes(buf[start : start + 4]),
        tags,
        _I32.pack(0),
        _I16.pack(error_code),
        encode_string(message, flexible=flexible),
        no_entries,
        tags,
    )


def _user_entry(user: str | None, value: bytes, flexible: bool) -> bytes:
    tags = b"\x00" if flexible else b""
    one = _array_count(1, flexible)
    name = encode_string(user, flexible=flexible)
    return b"".join((one, encode_string(USER, flexible=flexible), name, tags, one, value, tags))


def _value(key: str, value: float, flexible: bool) -> bytes:
    return encode_string(key, flexible=flexible) + _F64.pack(value) + (b"\x00" if flexible else b"")


def _after_values(data: bytes, pos: int, count: int, flexible: bool) -> int:
    for _ in range(count):
        _key, pos = _text(data, pos, flexible)
        pos += _F64.size
        if flexible:
            pos = skip_tags(data, pos, len(data))
    return pos


# Both


def _entry(data: bytes, pos: int, flexible: bool) -> tuple[Entry, int]:
    first = pos
    entity, components, pos = _entity(data, pos, flexible)
    raw_entity = data[first:pos]
    count, pos = _count(data, pos, flexible)
    operations = []
    for _ in range(count):
        first = pos
        key, pos = _text(data, pos, flexible)
        value: float = _F64.unpack_from(data, pos)[0]
        remove = data[pos + 8] != 0
        pos += 9
        if flexible:
            pos = skip_tags(data, pos, len(data))
        operations.append(Operation(key or "", value, remove, data[first:pos]))
    if flexible:
        pos = skip_tags(data, pos, len(data))
    return Entry(entity, components, raw_entity, operations), pos


def _entity(data: bytes, pos: int, flexible: bool) -> tuple[Entity, int, int]:
    """(entity, how many components were given, position after them)."""
    count, pos = _count(data, pos, flexible)
    if count == 1:
        only, pos = _text(data, pos, flexible)
        name, pos = _text(data, pos, flexible)
        return ((only or "", name),), 1, skip_tags(data, pos, len(data)) if flexible else pos
    found: dict[str, str | None] = {}
    for _ in range(count):
        entity_type, pos = _text(data, pos, flexible)
        found[entity_type or ""], pos = _text(data, pos, flexible)
        if flexible:
            pos = skip_tags(data, pos, len(data))
    return tuple(sorted(found.items(), key=_type)), count, pos


def _type(component: tuple[str, str | None]) -> str:
    return component[0]


def _text(data: bytes, pos: int, flexible: bool) -> tuple[str | None, int]:
    """A nullable string; a compact one of less than 127 bytes, as nearly all are, without a call."""
    if flexible:
        length = data[pos]
        pos += 1
        if length >= 0x80:
            length, pos = read_uvarint(data, pos - 1)
        length -= 1
    else:
        length = _I16.unpack_from(data, pos)[0]
        pos += 2
    if length < 0:
        if length != -1:
            raise MalformedFrame(f"a length of {length}")
        return None, pos
    to = pos + length
    if to > len(data):
        raise TruncatedFrame("a string runs over the end of the frame")
    return data[pos:to].decode("utf-8", "replace"), to


def _count(data: bytes, pos: int, flexible: bool) -> tuple[int, int]:
    """An array's element count; null, which an answer with an error has, counts as none."""
    if flexible:
        count, pos = read_uvarint(data, pos)
        count -= 1
    else:
        count = _I32.unpack_from(data, pos)[0]
        pos += 4
    if count < -1 or count > len(data) - pos:
        raise MalformedFrame(f"{count} elements in {len(data) - pos} bytes")
    return max(count, 0), pos


def _array_count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _I32.pack(count)


def _after_answer_head(data: bytes, flexible: bool) -> int:
    """The position after the correlation id and the header's tags."""
    return skip_tags(data, 4, len(data)) if flexible else 4


def _finish(data: bytes, pos: int, flexible: bool) -> None:
    if flexible:
        pos = skip_tags(data, pos, len(data))
    if pos != len(data):
        raise MalformedFrame(f"{len(data)} bytes, but its fields take {pos}")


def _checked(buf: Buffer, start: int, end: int) -> bytes:
    if not 0 <= start <= end <= len(buf):
        raise MalformedFrame("the frame lies outside its buffer")
    if end - start > MAX_READ_BYTES:
        raise FrameTooLarge(f"{end - start} bytes of client quotas, {MAX_READ_BYTES} are read at most")
    return bytes(buf[start:end])


@contextmanager
def _bounds() -> Iterator[None]:
    """What is read beyond the end of the frame is the peer's mistake."""
    try:
        yield
    except (IndexError, struct_error) as error:
        raise TruncatedFrame("client quotas that end before what they announce") from error
