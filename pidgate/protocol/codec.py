"""Codec for rare messages with many fields: kafka.protocol behind a guard, imported on first use. PURE.

Re-encoding a decoded message drops tagged fields that the codec does not know. Not for the hot path.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final, Literal
from uuid import UUID

from pidgate.protocol.errors import FrameTooLarge, MalformedFrame, UnsupportedVersion
from pidgate.protocol.frames import Buffer, Reader
from pidgate.protocol.headers import RequestHead, is_flexible
from pidgate.protocol.messages import API_VERSIONS, answer_reader
from pidgate.protocol.versions import SPOKEN, speaks
from pidgate.protocol.work import MOST_DECODED

MAX_DECODED_BYTES: Final = 65_536
"""Longest frame that is decoded."""

Kind = Literal["request", "response"]


@cache
def _classes() -> dict[tuple[int, str], Any]:
    """Return message classes by (api_key, kind): the codec's own and those built from protocol/schemas."""
    with warnings.catch_warnings():
        # The codec reads its schemas with importlib.resources.read_text, deprecated in Python 3.11 and 3.12
        # only.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.protocol import admin, api_message, consumer, metadata, producer, sasl

        base: Any = api_message.ApiMessage
        found: dict[tuple[int, str], Any] = {}
        for module in (admin, consumer, metadata, producer, sasl):
            for cls in [getattr(module, name) for name in module.__all__]:
                if getattr(cls, "API_KEY", None) is not None:
                    found[cls.API_KEY, cls.type] = cls
        for api_key, api in SPOKEN.items():
            codecs = found.get((api_key, "request"))
            # messages.py parses the newer versions of ApiVersions.
            if codecs is None or (codecs.max_version < api.max_version and api_key != API_VERSIONS):
                for kind in ("Request", "Response"):
                    cls = type(base)(api.name + kind, (base,), {}, load_json="pidgate.protocol.schemas")
                    found[api_key, cls.type] = cls
    return found


def load() -> None:
    """Import the codec ahead of the first request. The import blocks the event loop for 0.1 s."""
    _classes()


def message_class(api_key: int, kind: Kind) -> Any:
    """Return the codec's class of a message. Nested structs are its attributes.

    Pass version= at every level and a list for every array: the codec shares one default list between
    instances. Raises UnsupportedVersion for an API that is not offered.
    """
    if api_key not in SPOKEN:
        raise UnsupportedVersion(api_key, 0)
    return _classes()[api_key, kind]


def decode_request(buf: Buffer, head: RequestHead) -> Any:
    """Return the body of the request in `buf` as the codec's object. Raises KafkaProtocolError."""
    return _decode(head.api_key, head.api_version, "request", buf, head.body, head.end)


def decode_response(api_key: int, api_version: int, buf: Buffer, start: int, end: int) -> Any:
    """Return the body of a response frame as the codec's object. Raises KafkaProtocolError.

    Not for ApiVersions, whose body may have a different version than the request: see cap_api_versions.
    """
    return _decode(
        api_key, api_version, "response", buf, answer_reader(buf, start, end, api_key, api_version).pos, end
    )


def encode_request(correlation_id: int, client_id: str | None, message: Any) -> bytes:
    """Return the framed request. Raises the codec's error if the message does not fit its schema."""
    message.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(message.encode(header=True, framed=True))


def encode_response(correlation_id: int, message: Any) -> bytes:
    """Return the framed response. Raises the codec's error if the message does not fit its schema."""
    message.with_header(correlation_id=correlation_id)
    return bytes(message.encode(header=True, framed=True))


def _decode(api_key: int, api_version: int, kind: Kind, buf: Buffer, body: int, end: int) -> Any:
    if not speaks(api_key, api_version):
        raise UnsupportedVersion(api_key, api_version)
    if end - body > MAX_DECODED_BYTES:
        raise FrameTooLarge(f"{end - body} bytes for api key {api_key}, {MAX_DECODED_BYTES} at most")
    cls = message_class(api_key, kind)
    most = MOST_DECODED if kind == "request" else MAX_DECODED_BYTES
    reader = Reader(buf, body, end, flexible=is_flexible(api_key, api_version), most_elements=most)
    message = _struct(reader, cls, api_version)
    reader.finish()
    message._header = None  # the codec leaves the slot unset, but reads it when it encodes the message again
    return message


# These readers replace the codec's own, which differs from a broker's: it accepts varints of any length in
# quadratic time, and truncated strings. The gateway must parse the same values as the broker.


def _struct(reader: Reader, cls: Any, version: int) -> Any:
    struct = cls._struct
    values = {field.name: _field(reader, field, cls, version) for field in struct.untagged_fields(version)}
    if reader.flexible:
        known = struct.tagged_fields(version)._tags
        for tag, _, content, end in reader.tags():
            if tag not in known:
                values[f"_{tag}"] = bytes(reader.buf[content:end])
                continue
            inner = Reader(reader.buf, content, end, flexible=True, most_elements=reader.elements_left)
            values[known[tag].name] = _field(inner, known[tag], cls, version)
            inner.finish()
    return cls(version=version, **values)


def _field(reader: Reader, field: Any, cls: Any, version: int) -> Any:
    nullable = field.nullable_for_version_q(version)
    if field.is_struct_array():
        element = getattr(cls, field.type_str)
        return _array(reader, partial(_struct, reader, element, version), nullable=nullable)
    if field.is_array():
        read = partial(_primitive, reader, field.array_of.type_str, nullable=False)
        return _array(reader, read, nullable=nullable)
    if field.is_struct():
        if nullable and reader.i8() < 0:
            return None
        return _struct(reader, getattr(cls, field.type_str), version)
    return _primitive(reader, field.type_str, nullable=nullable)


def _primitive(reader: Reader, type_name: str, *, nullable: bool) -> Any:
    value = _PRIMITIVES[type_name](reader)
    if value is None and not nullable and type_name in _NEVER_NULL:
        raise MalformedFrame(f"null {type_name} in a field that is not nullable")
    return value


def _array(reader: Reader, read_element: Callable[[], Any], *, nullable: bool) -> list[Any] | None:
    at = reader.pos
    if nullable and reader.length(wide=True) < 0:
        return None
    reader.pos = at
    return [read_element() for _ in range(reader.count(1))]


def _raw_bytes(reader: Reader) -> bytes | None:
    length = reader.length(wide=True)
    return None if length < 0 else reader.read_bytes(length)


def _uuid(reader: Reader) -> UUID | None:
    raw = reader.read_bytes(16)
    return UUID(bytes=raw) if any(raw) else None


def _bits(reader: Reader) -> set[int] | None:
    value = reader.i32()
    return None if value == _NO_BITS else {bit for bit in range(32) if value >> bit & 1}


_NO_BITS: Final = -(1 << 31)  # Kafka's value for unknown authorized operations
_NEVER_NULL: Final = frozenset({"string", "bytes"})

_PRIMITIVES: Final[dict[str, Callable[[Reader], Any]]] = {
    "int8": Reader.i8,
    "int16": Reader.i16,
    "uint16": lambda reader: reader.i16() & 0xFFFF,
    "int32": Reader.i32,
    "int64": Reader.i64,
    "float64": Reader.f64,
    "bool": lambda reader: reader.i8() != 0,
    "uuid": _uuid,
    "string": Reader.nullable_string,
    "bytes": _raw_bytes,
    "records": _raw_bytes,
    "bitfield": _bits,
}
"""Readers by schema type name."""
