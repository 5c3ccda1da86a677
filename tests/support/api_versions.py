"""ApiVersions answers, read: the ranges that a broker offers, or that are left of them. Of no use to the gateway."""

from __future__ import annotations

import struct
from typing import NamedTuple

from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.frames import Buffer
from pidgate.protocol.headers import is_flexible
from pidgate.protocol.messages import API_VERSIONS, answer_reader

_RANGE = struct.Struct(">hhh")


class ApiVersionsAnswer(NamedTuple):
    error_code: int
    ranges: dict[int, tuple[int, int]]
    """api_key -> (min_version, max_version)."""


def api_versions_answer(buf: Buffer, start: int, end: int, request_version: int) -> ApiVersionsAnswer:
    """Read the broker's ranges from its ApiVersions answer; with UNSUPPORTED_VERSION it is one of v0 (KIP-511)."""
    reader = answer_reader(buf, start, end, API_VERSIONS, request_version)
    error_code = reader.i16()
    body_version = 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else request_version
    reader.flexible = is_flexible(API_VERSIONS, body_version)
    ranges = {}
    for _ in range(reader.count(_RANGE.size)):
        api_key, min_version, max_version = _RANGE.unpack_from(buf, reader.skip(_RANGE.size))
        reader.skip_tags()
        ranges[api_key] = (min_version, max_version)
    return ApiVersionsAnswer(error_code, ranges)
