"""Owners of delegation tokens (KIP-48) in CreateDelegationToken and DescribeDelegationToken responses. PURE.

Of clients' tokens only the id is parsed, never the HMAC, which is the password. Both are parsed for tokens
that the gateway creates for its own use.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

from pidgate.protocol.frames import Buffer, Reader, encode_string, framed
from pidgate.protocol.messages import answer_reader

CREATE_DELEGATION_TOKEN: Final = 38
DESCRIBE_DELEGATION_TOKEN: Final = 41

NEWEST_DESCRIBED: Final = 3
"""Version of `describe_tokens_request`."""

_USER: Final = "User"
_REQUESTER_FROM: Final = 3  # KIP-373: tokens for another owner
_TIMES_BYTES: Final = 3 * 8  # issue, expiry and maximum timestamps

_NO_TAGS: Final = b"\x00"
_EVERYBODY: Final = b"\x00"  # null list of owners
_NO_RENEWERS: Final = b"\x01"
_BROKERS_LIFETIME: Final = -1

TokenOwner = tuple[str, str]
"""(token id, owner's name)."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token created for a user. If `error_code` is not 0, the other fields are empty."""

    error_code: int
    token_id: str = ""
    password: str = field(default="", repr=False)
    """The token's HMAC in base64, the password for SCRAM."""
    life_ms: int = 0
    """Time until expiry, by the brokers' clocks."""


def create_token_request(correlation_id: int, client_id: str, owner: str) -> bytes:
    """Return a request for a token owned by another user (KIP-373), with the brokers' default lifetime."""
    return framed(
        struct.pack(">hhi", CREATE_DELEGATION_TOKEN, _REQUESTER_FROM, correlation_id),
        encode_string(client_id, flexible=False),
        _NO_TAGS,
        encode_string(_USER, flexible=True),
        encode_string(owner, flexible=True),
        _NO_RENEWERS,
        struct.pack(">q", _BROKERS_LIFETIME),
        _NO_TAGS,
    )


def describe_tokens_request(correlation_id: int, client_id: str) -> bytes:
    """Return a request for all tokens visible to the caller."""
    return framed(
        struct.pack(">hhi", DESCRIBE_DELEGATION_TOKEN, NEWEST_DESCRIBED, correlation_id),
        encode_string(client_id, flexible=False),
        _NO_TAGS,
        _EVERYBODY,
        _NO_TAGS,
    )


def new_token(buf: Buffer, start: int, end: int) -> NewToken:
    """Read the answer to `create_token_request`. Raises MalformedFrame."""
    reader = answer_reader(buf, start, end, CREATE_DELEGATION_TOKEN, _REQUESTER_FROM)
    error_code = reader.i16()
    if error_code:
        return NewToken(error_code)
    for _ in range(4):  # owner and requester
        reader.skip_string()
    issued_ms, expires_ms, _ = reader.i64(), reader.i64(), reader.i64()
    token_id = reader.string()
    hmac = bytes(reader.read_bytes(max(reader.length(wide=True), 0)))
    return NewToken(0, token_id, base64.b64encode(hmac).decode(), max(0, expires_ms - issued_ms))


def created_token(buf: Buffer, start: int, end: int, api_version: int) -> TokenOwner | None:
    """Return the token in a CreateDelegationToken response; None on error, or if its owner is not a user.

    Raises MalformedFrame, UnsupportedVersion.
    """
    reader = answer_reader(buf, start, end, CREATE_DELEGATION_TOKEN, api_version)
    error_code = reader.i16()
    found = _owned(reader, api_version)
    return None if error_code else found


def described_tokens(
    buf: Buffer, start: int, end: int, api_version: int
) -> Generator[None, None, list[TokenOwner]]:
    """Return the tokens in a DescribeDelegationToken response, in steps because the list is unbounded.

    Raises MalformedFrame, UnsupportedVersion on the way.
    """
    reader = answer_reader(buf, start, end, DESCRIBE_DELEGATION_TOKEN, api_version)
    reader.i16()  # error_code; no tokens follow an error
    tokens = []
    for _ in range(reader.count(_TIMES_BYTES)):
        found = _owned(reader, api_version)
        if found is not None:
            tokens.append(found)
        _skip_bytes(reader)  # hmac
        for _ in range(reader.count(2)):  # renewers
            reader.skip_string()
            reader.skip_string()
            reader.skip_tags()
            yield
        reader.skip_tags()
        yield
    return tokens


def _owned(reader: Reader, api_version: int) -> TokenOwner | None:
    """Read the fields from the owner to the token id."""
    kind, name = reader.string(), reader.string()
    if api_version >= _REQUESTER_FROM:
        reader.skip_string()
        reader.skip_string()
    reader.skip(_TIMES_BYTES)
    token_id = reader.string()
    is_a_user = kind == _USER and name != "" and "\0" not in name
    return (token_id, name) if is_a_user and token_id else None


def _skip_bytes(reader: Reader) -> None:
    reader.skip(max(reader.length(wide=True), 0))
