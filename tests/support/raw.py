"""Requests and answers of any API, and a blocking connection: for tests that must choose every byte, or count them.

Requests are built with the cold codec from plain dictionaries, so that one body serves all versions of an API:
a field that a version does not have is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pidgate.load.blocking import BlockingConnection
from pidgate.load.connection import ConnectionLost as Closed
from pidgate.load.exchanges import message_of
from pidgate.load.plan import Address
from pidgate.protocol import codec, messages
from tests.support.api_versions import api_versions_answer

__all__ = ["Body", "Closed", "RawClient", "address_of", "decoded", "produce_code", "request", "response"]

Body = Mapping[str, Any]
CORRELATION_ID = 77


def request(
    api_key: int,
    version: int,
    body: Body | None = None,
    *,
    correlation_id: int = CORRELATION_ID,
    client_id: str | None = "raw",
) -> bytes:
    """Return a framed request; ApiVersions needs no body."""
    if body is None and api_key == messages.API_VERSIONS:
        body = {"client_software_name": "raw", "client_software_version": "1"}
    message = message_of(codec.message_class(api_key, "request"), version, body or {})
    return codec.encode_request(correlation_id, client_id, message)


def response(api_key: int, version: int, body: Body, *, correlation_id: int = CORRELATION_ID) -> bytes:
    """Return a framed response, for a peer that plays a broker."""
    message = message_of(codec.message_class(api_key, "response"), version, body)
    return codec.encode_response(correlation_id, message)


def decoded(api_key: int, version: int, frame: bytes) -> dict[str, Any]:
    """Return the fields of a response frame (without its size prefix)."""
    if api_key == messages.API_VERSIONS:
        answer = api_versions_answer(frame, 0, len(frame), version)
        return {"error_code": answer.error_code, "ranges": answer.ranges}
    fields: dict[str, Any] = codec.decode_response(api_key, version, frame, 0, len(frame)).to_dict()
    return fields


def produce_code(frame: bytes) -> int:
    """Return the error code of the first partition in a response to Produce version 9, as `produce_one` has it."""
    (topic,) = decoded(0, 9, frame)["responses"]
    return int(topic["partition_responses"][0]["error_code"])


def address_of(servers: str | Address) -> Address:
    """Return the first of some host:port."""
    if isinstance(servers, str):
        host, _, port = servers.partition(",")[0].rpartition(":")
        return host, int(port)
    return servers


class RawClient(BlockingConnection):
    """A blocking connection that takes addresses as tests have them, and calls an API by its number."""

    def __init__(self, address: str | Address, timeout_s: float = 15.0, source: str = "") -> None:
        """`source`: the address of this machine to connect from, if any."""
        super().__init__(address_of(address), client_id="raw", timeout_s=timeout_s, source_host=source)

    def call(self, api_key: int, version: int, body: Body | None = None) -> dict[str, Any]:
        """Return the decoded answer to a request. Raises ConnectionLost."""
        return decoded(api_key, version, self.ask(request(api_key, version, body)))

    def is_closed(self) -> bool:
        """Wait for the end of the connection; False when a byte comes instead. Raises TimeoutError."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
