"""The id of the events topic, asked over the gateway's own, authenticated connection.

Clients may name a topic by its id, and aiokafka's own Metadata requests are too old to tell ids. So one is sent in
our own bytes, wrapped in what the library wants a request to be.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from pidgate.protocol import messages, metadata

_VERSION = messages.METADATA_PROBE_VERSION
_HEADER_BYTES = 4 + 8 + 2 + 1
"""Of a framed request without a client id: size, key, version and correlation id, an empty string, no tags."""
_ANSWER_HEADER = bytes(5)
"""A correlation id and no tags, which the library has taken off the answer."""
_NO_ID = bytes(16)


async def topic_id_of(admin: Any, name: str) -> bytes | None:
    """The topic's 16 bytes, asked with a started AIOKafkaAdminClient; None while the topic is not there.

    Raises aiokafka's errors and MalformedFrame.
    """
    answer = await admin._send_request(_request(name))
    whole = _ANSWER_HEADER + answer.body
    for found, topic_id in metadata.topic_ids(whole, 0, len(whole), _VERSION):
        if found == name and topic_id != _NO_ID:
            return bytes(topic_id)
    return None


def _request(name: str) -> Any:
    from aiokafka.protocol.api import Request, RequestStruct, Response
    from aiokafka.protocol.types import AbstractType, Schema

    class Rest(AbstractType[bytes]):  # type: ignore[misc]  # the library has no types
        """All that is left, as it is."""

        @classmethod
        def encode(cls, value: bytes) -> bytes:
            return value

        @classmethod
        def decode(cls, data: BytesIO) -> bytes:
            return data.read()

        @classmethod
        def repr(cls, value: bytes) -> str:
            return f"{len(value)} bytes"

    class Answer(Response):  # type: ignore[misc]
        API_KEY = messages.METADATA
        API_VERSION = _VERSION
        SCHEMA = Schema(("body", Rest))

    class Struct(RequestStruct):  # type: ignore[misc]
        FLEXIBLE_VERSION = True
        API_KEY = messages.METADATA
        API_VERSION = _VERSION
        RESPONSE_TYPE = Answer
        SCHEMA = Schema(("body", Rest))

    class Metadata(Request[Struct]):  # type: ignore[misc]
        API_KEY = messages.METADATA

        def build(self, request_struct_class: type[Struct]) -> Struct:
            return request_struct_class(messages.metadata_request(1, "", [name])[_HEADER_BYTES:])

    return Metadata()
