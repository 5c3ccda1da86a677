"""The buffer for the next read of a socket, and the beginning of a frame that has not arrived whole.

All connections of a process read into the same buffer, one at a time: the event loop asks for a buffer, reads, and
hands the bytes over before it turns to another socket. An idle connection therefore costs no buffer at all. The
beginning of an incomplete frame is copied out and put in front of the next read. A frame larger than the shared buffer
gets a bytearray of its own: it is read straight into it and handed on without another copy. That bytearray grows as
the bytes come, because a length is cheap to write. It grows without being filled: memory that nothing was read into
takes no page, and a hundred megabytes of zeroes would keep everybody waiting for 70 ms.
"""

from __future__ import annotations

import ctypes
from struct import Struct
from typing import Any, Final

from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES
from pidgate.protocol.errors import FrameTooLarge
from pidgate.protocol.proxy_header import SIGNATURE

READ_BUFFER: Final = bytearray(READ_BUFFER_BYTES)
READ_VIEW: Final = memoryview(READ_BUFFER)

SIZE: Final = Struct(">i")
SIZE_BYTES: Final = 4

FIRST_LARGE_BYTES: Final = 64 * 1024
"""The least that may be read of a large frame at first; it doubles each time so much has come."""

_TLS_RECORD: Final = 0x1603
"""A TLS connection begins so: a handshake's record, of version 3.x."""
_PROXY_HEADERS: Final = tuple(int.from_bytes(first, "big") for first in (SIGNATURE[:4], b"PROX"))
"""A PROXY header begins so, in version 2 and 1."""

LARGEST_MOVED_BYTES: Final = 4 * 1024 * 1024
"""A buffer that grows may have to be moved, a millisecond for these. Beyond it has the whole frame's size at once."""

_RESIZE: Final[Any] = ctypes.pythonapi.PyByteArray_Resize
_RESIZE.argtypes = [ctypes.py_object, ctypes.c_ssize_t]
_RESIZE.restype = ctypes.c_int


def frame_size(buf: bytes | bytearray, pos: int) -> int:
    """Return the size prefix at `pos`. Negative: this is not Kafka's protocol."""
    if isinstance(buf, bytes):  # the hot path: see repeated_produce.py
        size = buf[pos] << 24 | buf[pos + 1] << 16 | buf[pos + 2] << 8 | buf[pos + 3]
        return size if size < 1 << 31 else size - (1 << 32)
    size_of_large: int = SIZE.unpack_from(buf, pos)[0]
    return size_of_large


def too_large(frame_bytes: int, limit_bytes: int, *, of_login: bool) -> FrameTooLarge:
    """Return the error of a size prefix that is negative or above the limit: other protocols look so."""
    if frame_bytes < 0:
        return FrameTooLarge(f"a frame of {frame_bytes} bytes: this is not Kafka's protocol")
    if frame_bytes >> 16 == _TLS_RECORD:
        return FrameTooLarge(
            "it speaks TLS, and this listener has none: write listeners.tls, or PLAINTEXT there"
        )
    if frame_bytes in _PROXY_HEADERS:
        return FrameTooLarge(
            "it sends a PROXY header, which is read only from the addresses in listeners.proxy_protocol_from"
        )
    if of_login:
        return FrameTooLarge(
            f"a frame of {frame_bytes} bytes; before and in a login {limit_bytes} are allowed"
        )
    return FrameTooLarge(f"a frame of {frame_bytes} bytes, limits.frame allows {limit_bytes}")


class ReceiveBuffer:
    """Bytes of one socket between two reads."""

    __slots__ = ("_filled", "_granted_bytes", "_large", "_large_bytes", "_rest", "is_plain")

    def __init__(self) -> None:
        self._rest = b""
        self._large: bytearray | None = None
        self._large_bytes = 0
        self._filled = 0
        self._granted_bytes = 0
        """So much of the large frame may be read for now."""
        self.is_plain = True
        """Nothing is kept: the next read goes to the beginning of READ_BUFFER. A plain attribute, because every
        read asks."""

    def next_read(self) -> memoryview:
        """The buffer to read into; valid only until the bytes are handed to `received`."""
        large = self._large
        if large is not None:
            if self._filled == self._granted_bytes:
                self._granted_bytes = self.wanted_bytes
            if len(large) < self._granted_bytes:
                # Only here: after the read, the event loop still holds the view that it read into.
                resize(large, buffer_bytes(self._granted_bytes, self._large_bytes))
            return memoryview(large)[self._filled : self._granted_bytes]
        rest = self._rest
        if rest:
            READ_VIEW[: len(rest)] = rest
            return READ_VIEW[len(rest) :]
        return READ_VIEW

    def received(self, nbytes: int) -> tuple[bytearray, int] | None:
        """(buffer, end) with everything that is there, None while a large frame is incomplete."""
        large = self._large
        if large is None:
            end = len(self._rest) + nbytes
            self._rest = b""
            self.is_plain = True
            return READ_BUFFER, end
        self._filled += nbytes
        if self._filled < self._large_bytes:
            return None
        self._large = None  # it belongs to its receiver from here on
        self.is_plain = True
        return large, len(large)

    def keep(self, buf: bytes | bytearray, start: int, end: int) -> None:
        """Keep buf[start:end], the beginning of a frame that fits into the shared buffer, or too little to know."""
        self.is_plain = False
        self._rest = bytes(memoryview(buf)[start:end])

    def keep_large(
        self, buf: bytes | bytearray, start: int, end: int, frame_bytes: int, granted_bytes: int
    ) -> None:
        """Keep buf[start:end], the beginning of a frame that gets a buffer of its own, of `granted_bytes` for now.

        The caller has counted what it grants, since the allocator may hand out memory that is resident already. Who
        has to wait grants what has come, and the rest by `grant`.
        """
        self.is_plain = False
        # Copied once, to where the rest of the frame will be read; what is not read into takes no memory.
        large = bytearray()
        resize(large, buffer_bytes(granted_bytes, frame_bytes))
        memoryview(large)[: end - start] = memoryview(buf)[start:end]
        self._large, self._large_bytes = large, frame_bytes
        self._filled, self._granted_bytes = end - start, granted_bytes

    def grant(self, granted_bytes: int) -> None:
        """Let so much of a large frame be read, from the next read on."""
        if self._large is not None:
            self._granted_bytes = max(self._granted_bytes, granted_bytes)

    def clear(self) -> None:
        """The socket is gone. Its owners refer to each other, and the garbage collector may take its time."""
        self._rest, self._large, self.is_plain = b"", None, True

    @property
    def wanted_bytes(self) -> int:
        """Bytes of the large frame that may be read from the next read on; 0 when there is room already."""
        if self._large is None or self._filled < self._granted_bytes:
            return 0
        return min(2 * self._granted_bytes, self._large_bytes)

    @property
    def arrived_bytes(self) -> int:
        """Bytes of the incomplete frame that have arrived."""
        return len(self._rest) if self._large is None else self._filled

    @property
    def is_empty(self) -> bool:
        return not self._rest and self._large is None


def resize(buf: bytearray, size_bytes: int) -> None:
    """Set the size of a bytearray; what is added is not initialised. Raises MemoryError, BufferError."""
    _RESIZE(buf, size_bytes)


def buffer_bytes(granted_bytes: int, frame_bytes: int) -> int:
    """Return the size of a large frame's buffer of which so much may be read."""
    return granted_bytes if granted_bytes <= LARGEST_MOVED_BYTES else frame_bytes


def large_frame_bytes(buf: bytes | bytearray, start: int, end: int, head_bytes: int) -> int:
    """Return the bytes of a frame, with its prefix, that needs a buffer of its own; 0: it does not, or less than
    `head_bytes` of it have come.
    """
    if end - start < head_bytes:
        return 0
    frame_bytes = frame_size(buf, start) + SIZE_BYTES
    return frame_bytes if frame_bytes > READ_BUFFER_BYTES else 0


def first_large_bytes(frame_bytes: int, arrived_bytes: int) -> int:
    """Return how many bytes of a large frame may be read at first: more for clients that have shown more."""
    return min(frame_bytes, max(FIRST_LARGE_BYTES, 4 * arrived_bytes))
