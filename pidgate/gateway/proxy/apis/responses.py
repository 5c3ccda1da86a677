"""A broker's answer, and its way to the client."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

Buffer = bytes | bytearray
NO_BYTES: Final = bytearray()


class Passing(IntEnum):
    """How a broker's answer passes to the client."""

    UNREAD = 0
    """Unread: it streams through."""
    ENDPOINTS_LAST = 1
    """Through a walker that rewrites the addresses at its end (Fetch, ShareFetch)."""
    WHOLE = 2
    """Buffered whole, then handed to `Api.handle_response`."""
    COUNTED = 3
    """`Api.begin_response` chooses one of the others once the answer's head has arrived."""


UNREAD: Final = Passing.UNREAD
ENDPOINTS_LAST: Final = Passing.ENDPOINTS_LAST
WHOLE: Final = Passing.WHOLE
COUNTED: Final = Passing.COUNTED


class Response:
    """A broker's answer, buf[start:end]. Its size prefix lies before `start`.

    All answers have the same instance: keep no reference to it, except to a buffer that `may_be_kept`.
    """

    __slots__ = ("buf", "end", "may_be_kept", "now_ms", "start")

    buf: bytearray
    may_be_kept: bool
    """The buffer belongs to this answer; otherwise it is the read buffer shared by all connections."""
    start: int
    end: int
    now_ms: int
