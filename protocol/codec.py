"""The codec for cold messages with many fields: kafka.protocol behind a guard, imported at first use. PURE.

Re-encoding a decoded message drops the tagged fields that the codec does not know. Must not be used on the hot path.
"""

from __future__ import annotations

import re
import struct
import warnings
from functools import cache
from typing import Any, Final, Literal

from pidgate.protocol.errors import FrameTooLarge, MalformedFrame, UnsupportedVersion
from pidgate.protocol.frames import Buffer
from pidgate.protocol.headers import is_flexible, peek_request
from pidgate.protocol.messages import answer_reader
from pidgate.protocol.versions import SPOKEN, speaks

MAX_DECODED_BYTES: Final = 65_536
"""Longest frame given to the codec: it copies, and its time is not linear in what a peer sends."""

_ENDLESS_VARINT = re.compile(rb"[\x80-\xff]{4096}")
# The codec's varint reader has no limit and is quadratic (80 KB of 0xff: 0.13 s). No name in a cold message
# has so many bytes in a row that are not ASCII, but a varint without an end has.

_CODEC_ERRORS: Final = (
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)

Kind = Literal["request", "response"]


@cache
def _classes() -> dict[tuple[int, str], Any]:
    """Message classes by (api_key, kind): the codec's own, and those made of protocol/schemas."""
    with warnings.catch_warnings():
        # It reads its schemas with importlib.resources.read_text, deprecated in Python 3.11 and 3.12 only.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.protocol import admin, api_message, consumer, metadata, producer, sasl

        base: Any = api_message.ApiMessage
        found: dict[tuple[int, str], Any] = {}
        for module in (admin, consumer, metadata, producer, sasl):
            for cls in [getattr(module, name) for name in module.__all__]:
                if getattr(cls, "API_KEY", None) is not None:
                    found[cls.API_KEY, cls.type] = cls
        for api_key, api in SPOKEN.items():
            if (api_key, "request") not in found:
                for kind in ("Request", "Response"):
                    cls = type(base)(api.name + kind, (base,), {}, load_json="pidgate.protocol.schemas")
                    found[api_key, cls.type] = cls
    return found


def message_class(api_key: int, kind: Kind) -> Any:
    """The codec's class of a message; its nested structs are its attributes.

    Give version= at every level and a list for every array: the codec shares one default list between
    instances. Raises UnsupportedVersion for an API that we do not offer.
    """
    if api_key not in SPOKEN:
        raise UnsupportedVersion(api_key, 0)
    return _classes()[api_key, kind]


def decode_request(buf: Buffer, start: int, end: int) -> Any:
    """The body of a request frame as the codec's object. Raises KafkaProtocolError."""
    head = peek_request(buf, start, end)
    return _decode(head.api_key, head.api_version, "request", buf, head.body, end)


def decode_response(api_key: int, api_version: int, buf: Buffer, start: int, end: int) -> Any:
    """The body of a response frame as the codec's object. Raises KafkaProtocolError.

    Not for ApiVersions, whose body may have another version than the request: see api_versions_answer.
    """
    return _decode(
        api_key, api_version, "response", buf, answer_reader(buf, start, end, api_key, api_version).pos, end
    )


def encode_request(correlation_id: int, client_id: str | None, message: Any) -> bytes:
    """The framed request. A message that does not fit its schema is our mistake: the codec's error passes."""
    message.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(message.encode(header=True, framed=True))


def encode_response(correlation_id: int, message: Any) -> bytes:
    """The framed response. As with a request, what the codec raises, passes."""
    message.with_header(correlation_id=correlation_id)
    return bytes(message.encode(header=True, framed=True))


def _decode(api_key: int, api_version: int, kind: Kind, buf: Buffer, body: int, end: int) -> Any:
    if not speaks(api_key, api_version):
        raise UnsupportedVersion(api_key, api_version)
    if end - body > MAX_DECODED_BYTES:
        raise FrameTooLarge(f"{end - body} bytes for api key {api_key}, {MAX_DECODED_BYTES} at most")
    data = bytes(buf[body:end])
    if _ENDLESS_VARINT.search(data):
        raise MalformedFrame("a varint without an end")
    cls = message_class(api_key, kind)
    flexible = is_flexible(api_key, api_version)
    # Not cls.decode: it forgets the position, without which a string cut short reads as a shorter string.
    read = cls._struct.compiled_decode_from(api_version, compact=flexible, tagged=flexible, data_class=cls)
    try:
        message, pos = read(memoryview(data), 0)
    except _CODEC_ERRORS as error:
        raise MalformedFrame(f"{cls.__name__} v{api_version}: {type(error).__name__}") from error
    if pos != len(data):
        raise MalformedFrame(f"{cls.__name__} v{api_version}: {len(data)} bytes, but its fields take {pos}")
    message._header = None  # the codec leaves the slot unset, and reads it when the message is encoded again
    return message
