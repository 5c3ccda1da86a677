"""A broker's answer, and the way it passes to the client."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

Buffer = bytes | bytearray
NO_BYTES: Final = bytearray()


class Passing(IntEnum):
    """The way of a broker's answer to the client."""

    UNREAD = 0
    """Unread: it streams through."""
    ENDPOINTS_LAST = 1
    """By a walker that rewrites the addresses at its end (Fetch, ShareFetch)."""
    WHOLE = 2
    """Read whole, then handed to `Api.response`."""
    COUNTED = 3
    """`Api.begins` is asked once its head is there, and says which of the others it is."""


UNREAD: Final = Passing.UNREAD
ENDPOINTS_LAST: Final = Passing.ENDPOINTS_LAST
WHOLE: Final = Passing.WHOLE
COUNTED: Final = Passing.COUNTED


class Response:
    """An answer of the broker, buf[start:end] without its size prefix, which lies before `start`.

    There is one for each broker's channel, used again and again: keep nothing of it, but a buffer that `may_be_kept`.
    """

    __slots__ = ("buf", "end", "may_be_kept", "now_ms", "start")

    def __init__(self) -> None:
        self.buf = NO_BYTES
        self.may_be_kept = False
        """The buffer belongs to this answer; else it is the one that all connections read into."""
        self.start = 0
        self.end = 0
        self.now_ms = 0
