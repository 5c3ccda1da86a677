"""Owners of delegation tokens (KIP-48), in the answers that show them: CreateDelegationToken, DescribeDelegationToken.

PURE. Of a token only its id is read, never its HMAC, which is its password.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from pidgate.protocol.frames import Buffer, Reader
from pidgate.protocol.messages import answer_reader

CREATE_DELEGATION_TOKEN: Final = 38
DESCRIBE_DELEGATION_TOKEN: Final = 41

_USER: Final = "User"
_REQUESTER_FROM: Final = 3  # KIP-373: made for another owner
_TIMES_BYTES: Final = 3 * 8  # issued, expires, lives at most until

TokenOwner = tuple[str, str]
"""(token id, its owner's name)."""


def created_token(buf: Buffer, start: int, end: int, api_version: int) -> TokenOwner | None:
    """Return the token that a CreateDelegationToken answer shows; None: none was made, or its owner is no user.

    Raises MalformedFrame, UnsupportedVersion.
    """
    reader = answer_reader(buf, start, end, CREATE_DELEGATION_TOKEN, api_version)
    error_code = reader.i16()
    found = _owned(reader, api_version)
    return None if error_code else found


def described_tokens(
    buf: Buffer, start: int, end: int, api_version: int
) -> Generator[None, None, list[TokenOwner]]:
    """Return the tokens in a DescribeDelegationToken answer, in steps: there may be as many as users have made.

    Raises MalformedFrame, UnsupportedVersion on the way.
    """
    reader = answer_reader(buf, start, end, DESCRIBE_DELEGATION_TOKEN, api_version)
    reader.i16()  # error_code; with one there are no tokens
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
    """Read from the owner to the token's id."""
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
