"""Kafka's protocol by hand over one socket: for tests that must choose every byte, or count them.

Requests are built with the cold codec from plain dictionaries, so that one body serves all versions of an API:
a field that a version does not have is left out.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any, Self

from pidgate.protocol import messages

Body = Mapping[str, Any]
CORRELATION_ID = 77


def build(cls: Any, version: int, body: Body) -> Any:
    """A message or struct of the codec; `body` may name fields that this version does not have."""
    fields: dict[str, Any] = {}
    for field in cls._struct._fields:
        if not field.for_version_q(version):
            continue
        if field.name not in body:
            if field.is_struct_array():
                fields[field.name] = []
            continue
        value = body[field.name]
        if value is not None and field.is_struct_array():
            value = [build(getattr(cls, field.type_str), version, element) for element in value]
        elif value is not None and field.is_struct():
            value = build(getattr(cls, field.type_str), version, value)
        fields[field.name] = value
    return cls(version=version, **fields)


def request(
    api_key: int,
    version: int,
    body: Body | None = None,
    *,
    correlation_id: int = CORRELATION_ID,
    client_id: str | None = "raw",
) -> bytes:
    """A framed request; ApiVersions needs no body."""
    if body is None and api_key == messages.API_VERSIONS:
        body = {"client_software_name": "raw", "client_software_version": "1"}
    message = build(messages.message_class(api_key, "request"), version, body or {})
    return messages.encode_request(correlation_id, client_id, message)


def response(api_key: int, version: int, body: Body, *, correlation_id: int = CORRELATION_ID) -> bytes:
    """A framed response, for a peer that plays a broker."""
    message = build(messages.message_class(api_key, "response"), version, body)
    return messages.encode_response(correlation_id, message)


def decoded(api_key: int, version: int, frame: bytes) -> dict[str, Any]:
    """The fields of a response frame (without its size prefix)."""
    if api_key == messages.API_VERSIONS:
        answer = messages.api_versions_answer(frame, 0, len(frame), version)
        return {"error_code": answer.error_code, "ranges": answer.ranges}
    fields: dict[str, Any] = messages.decode_response(api_key, version, frame, 0, len(frame)).to_dict()
    return fields


class Closed(ConnectionError):
    """The other side closed the connection where a frame should have begun."""


class RawClient:
    """One blocking connection. Use it in a `with` block."""

    def __init__(self, address: str | tuple[str, int], timeout_s: float = 15.0) -> None:
        if isinstance(address, str):
            host, _, port = address.partition(",")[0].rpartition(":")
            address = (host, int(port))
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> bytes:
        """The next frame without its size prefix. Raises Closed when there is none any more."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def ask(self, framed: bytes) -> bytes:
        """Send one request and read one answer. Raises Closed."""
        self.send(framed)
        return self.frame()

    def call(self, api_key: int, version: int, body: Body | None = None) -> dict[str, Any]:
        """The decoded answer to a request. Raises Closed."""
        return decoded(api_key, version, self.ask(request(api_key, version, body)))

    def is_closed(self) -> bool:
        """Waits for the end of the connection; False when a byte comes instead. Raises TimeoutError."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            try:
                part = self.socket.recv(min(length - len(parts), 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed(f"closed after {len(parts)} of {length} bytes")
            parts += part
        return bytes(parts)
