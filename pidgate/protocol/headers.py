"""Request headers: API key, version, correlation id, client id.

Request header v1 is (api key, api version, correlation id, client id). v2 (flexible versions, KIP-482) adds a
tag buffer and keeps the client id's int16 length. Response header v0 is the correlation id; v1 adds a tag
buffer. ApiVersions responses always have header v0 (KIP-511), because the client does not know the version
yet.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from pidgate.protocol.errors import MalformedFrame, UnsupportedVersion
from pidgate.protocol.frames import Buffer, skip_tags
from pidgate.protocol.versions import SPOKEN

API_VERSIONS: Final = 18

_NEVER: Final = 0x7FFF  # above every version
_FIRST_FLEXIBLE: Final[dict[int, int]] = {
    api_key: _NEVER if api.flexible_from is None else api.flexible_from for api_key, api in SPOKEN.items()
}


class RequestHead(NamedTuple):
    """A request header and the position of its frame in the buffer."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int
    """Offset of the first byte after the header."""
    start: int
    end: int

    def moved(self, by: int) -> RequestHead:
        """Return the header of the same frame moved back by this many bytes."""
        return self._replace(body=self.body + by, start=self.start + by, end=self.end + by)


_HEAD: Final = Struct(">hhih").unpack_from
_HEAD_BYTES: Final = 10


def peek_request(buf: Buffer, start: int, end: int) -> RequestHead:
    """Return the header of the request frame buf[start:end].

    Raises MalformedFrame, or UnsupportedVersion for an API that is not offered and whose header format is
    unknown.
    """
    try:
        api_key, api_version, correlation_id, length = _HEAD(buf, start)
    except struct_error as error:
        raise MalformedFrame("a request shorter than its header") from error
    body = start + _HEAD_BYTES
    client_id = None
    if length >= 0:
        client_id_end = body + length
        if client_id_end <= end:
            client_id = str(buf[body:client_id_end], "utf-8", "replace")
        body = client_id_end
    elif length != -1:
        raise MalformedFrame(f"a client id of {length} bytes")
    first_flexible = _FIRST_FLEXIBLE.get(api_key)
    if first_flexible is None:
        raise UnsupportedVersion(api_key, api_version)
    if api_version >= first_flexible:
        body = skip_tags(buf, body, end)
    if body > end:
        raise MalformedFrame("a request shorter than its header")
    return RequestHead(api_key, api_version, correlation_id, client_id, body, start, end)


def response_header_version(api_key: int, api_version: int) -> int:
    """Return 1 for flexible versions except ApiVersions, otherwise 0.

    Raises UnsupportedVersion for unknown APIs.
    """
    return 1 if api_key != API_VERSIONS and is_flexible(api_key, api_version) else 0


def is_flexible(api_key: int, api_version: int) -> bool:
    """Return whether this version has compact types and tag buffers.

    Raises UnsupportedVersion for unknown APIs.
    """
    first_flexible = _FIRST_FLEXIBLE.get(api_key)
    if first_flexible is None:
        raise UnsupportedVersion(api_key, api_version)
    return api_version >= first_flexible
