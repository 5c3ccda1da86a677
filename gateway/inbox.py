"""Where the next read of one socket goes, and what is left of a frame that has not come whole.

Reads go to the buffer that all connections share (see buffers.py). The beginning of an incomplete frame is
copied out and put in front of the next read. A frame larger than the shared buffer gets a bytearray of its own
size: it is read straight into it and handed on without another copy.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from gateway.buffers import READ_BUFFER, READ_BUFFER_BYTES, READ_VIEW

SIZE: Final = Struct(">i")
SIZE_BYTES: Final = 4


class Inbox:
    """Bytes of one socket between two reads."""

    __slots__ = ("_filled", "_large", "_large_view", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._large: bytearray | None = None
        self._large_view: memoryview | None = None
        self._filled = 0

    def next_read(self) -> memoryview:
        """The buffer to read into; valid only until the bytes are handed to `received`."""
        if self._large_view is not None:
            return self._large_view[self._filled :]
        rest = self._rest
        if rest:
            READ_BUFFER[: len(rest)] = rest
            return READ_VIEW[len(rest) :]
        return READ_VIEW

    def received(self, nbytes: int) -> tuple[bytearray, int] | None:
        """(buffer, end) with everything that is there, None while a large frame is incomplete."""
        large = self._large
        if large is None:
            end = len(self._rest) + nbytes
            self._rest = b""
            return READ_BUFFER, end
        self._filled += nbytes
        if self._filled < len(large):
            return None
        # Views must be gone before the buffer is handed on: it belongs to its receiver from here on.
        self._large = self._large_view = None
        return large, len(large)

    def keep(self, buf: bytearray, start: int, end: int) -> int:
        """Keep buf[start:end], the beginning of an incomplete frame.

        Returns the bytes of the frame with its prefix when it is too large for the shared buffer and needs
        `expect_large`, otherwise 0.
        """
        self._rest = bytes(memoryview(buf)[start:end])
        if end - start >= SIZE_BYTES:
            frame_bytes: int = SIZE.unpack_from(buf, start)[0] + SIZE_BYTES
            if frame_bytes > READ_BUFFER_BYTES:
                return frame_bytes
        return 0

    def expect_large(self, frame_bytes: int) -> None:
        """Read on into a buffer of exactly this size, beginning with what was kept."""
        rest = self._rest
        large = bytearray(frame_bytes)
        large[: len(rest)] = rest
        self._large, self._large_view, self._filled, self._rest = large, memoryview(large), len(rest), b""

    @property
    def is_empty(self) -> bool:
        return not self._rest and self._large is None
