"""The buffer for a socket's next read, and the beginning of a frame that is still incomplete.

All connections of a process read into one shared buffer: the event loop asks for a buffer, reads, and
delivers the bytes before it turns to another socket. An idle connection therefore needs no buffer. The
beginning of an incomplete frame is copied out and put in front of the next read. A frame larger than the
shared buffer gets its own bytearray: it is read straight into it and passed on without another copy. The
bytearray grows as bytes arrive, because an announced length proves nothing. It grows without being zeroed:
untouched memory takes no page, and zeroing a hundred megabytes would block the event loop for 70 ms.
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
"""First size granted to a large frame. It doubles whenever that much has arrived."""

_TLS_RECORD: Final = 0x1603
"""First bytes of a TLS connection: a handshake record of version 3.x."""
_HTTP_METHODS: Final = tuple(
    int.from_bytes(first, "big") for first in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN")
)
_PROXY_HEADERS: Final = tuple(int.from_bytes(first, "big") for first in (SIGNATURE[:4], b"PROX"))
"""First bytes of a PROXY header, version 2 and 1."""

LARGEST_MOVED_BYTES: Final = 4 * 1024 * 1024
"""A growing buffer may have to be moved, which takes a millisecond at this size. A larger one is allocated
whole."""

_RESIZE: Final[Any] = ctypes.pythonapi.PyByteArray_Resize
_RESIZE.argtypes = [ctypes.py_object, ctypes.c_ssize_t]
_RESIZE.restype = ctypes.c_int


def frame_size(buf: bytes | bytearray, pos: int) -> int:
    """Return the size prefix at `pos`. A negative size means a protocol other than Kafka's."""
    if isinstance(buf, bytes):  # the hot path: see repeated_produce.py
        size = buf[pos] << 24 | buf[pos + 1] << 16 | buf[pos + 2] << 8 | buf[pos + 3]
        return size if size < 1 << 31 else size - (1 << 32)
    size_of_large: int = SIZE.unpack_from(buf, pos)[0]
    return size_of_large


def too_large(frame_bytes: int, limit_bytes: int, *, of_login: bool) -> FrameTooLarge:
    """Return the error for a size prefix that is negative or above the limit, as other protocols produce."""
    if frame_bytes < 0:
        return FrameTooLarge(f"a frame of {frame_bytes} bytes: this is not Kafka's protocol")
    if frame_bytes >> 16 == _TLS_RECORD:
        return FrameTooLarge(
            "it speaks TLS, and this listener has none: write listeners.tls, or PLAINTEXT there"
        )
    if frame_bytes in _HTTP_METHODS:
        return FrameTooLarge(
            "it speaks HTTP, and this port is for Kafka clients: health and metrics are at admin.bind"
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
        """Bytes of the large frame that may be read for now."""
        self.is_plain = True
        """Nothing is buffered: the next read goes to the beginning of READ_BUFFER. A plain attribute, because
        every read checks it."""

    def next_read(self) -> memoryview:
        """Return the buffer to read into, valid only until the bytes are passed to `received`."""
        large = self._large
        if large is not None:
            if self._filled == self._granted_bytes:
                self._granted_bytes = self.wanted_bytes
            if len(large) < self._granted_bytes:
                # Resize here only: after the read the event loop still holds a view of the buffer.
                resize(large, buffer_bytes(self._granted_bytes, self._large_bytes))
            return memoryview(large)[self._filled : self._granted_bytes]
        rest = self._rest
        if rest:
            READ_VIEW[: len(rest)] = rest
            return READ_VIEW[len(rest) :]
        return READ_VIEW

    def received(self, nbytes: int) -> tuple[bytearray, int] | None:
        """Return (buffer, end) with all bytes so far. None: a large frame is incomplete."""
        large = self._large
        if large is None:
            end = len(self._rest) + nbytes
            self._rest = b""
            self.is_plain = True
            return READ_BUFFER, end
        self._filled += nbytes
        if self._filled < self._large_bytes:
            return None
        self._large = None  # owned by the receiver from here on
        self.is_plain = True
        return large, len(large)

    def keep(self, buf: bytes | bytearray, start: int, end: int) -> None:
        """Keep buf[start:end], the beginning of a frame that fits the shared buffer or has an unknown size."""
        self.is_plain = False
        self._rest = bytes(memoryview(buf)[start:end])

    def keep_large(
        self, buf: bytes | bytearray, start: int, end: int, frame_bytes: int, granted_bytes: int
    ) -> None:
        """Keep buf[start:end], the beginning of a large frame, in its own buffer of `granted_bytes` for now.

        The caller has reserved the granted bytes, since the allocator may return memory that is resident
        already. A caller that has to wait grants only the arrived bytes, and the rest later by `grant`.
        """
        self.is_plain = False
        # Copied once, to its final place. Memory that is not read into stays unallocated.
        large = bytearray()
        resize(large, buffer_bytes(granted_bytes, frame_bytes))
        memoryview(large)[: end - start] = memoryview(buf)[start:end]
        self._large, self._large_bytes = large, frame_bytes
        self._filled, self._granted_bytes = end - start, granted_bytes

    def grant(self, granted_bytes: int) -> None:
        """Allow this many bytes of a large frame in total, from the next read on."""
        if self._large is not None:
            self._granted_bytes = max(self._granted_bytes, granted_bytes)

    def clear(self) -> None:
        """Drop all bytes: the socket is closed, and reference cycles may delay garbage collection."""
        self._rest, self._large, self.is_plain = b"", None, True

    @property
    def wanted_bytes(self) -> int:
        """Return the size to grant to the large frame next; 0: there is room already."""
        if self._large is None or self._filled < self._granted_bytes:
            return 0
        return min(2 * self._granted_bytes, self._large_bytes)

    @property
    def arrived_bytes(self) -> int:
        return len(self._rest) if self._large is None else self._filled

    @property
    def is_empty(self) -> bool:
        return not self._rest and self._large is None


def resize(buf: bytearray, size_bytes: int) -> None:
    """Resize a bytearray without initialising the added bytes. Raises MemoryError, BufferError."""
    _RESIZE(buf, size_bytes)


def buffer_bytes(granted_bytes: int, frame_bytes: int) -> int:
    """Return the buffer size for a large frame with this grant."""
    return granted_bytes if granted_bytes <= LARGEST_MOVED_BYTES else frame_bytes


def large_frame_bytes(buf: bytes | bytearray, start: int, end: int, head_bytes: int) -> int:
    """Return the size, with prefix, of a frame that needs its own buffer.

    Returns 0 when it does not, or when fewer than `head_bytes` have arrived.
    """
    if end - start < head_bytes:
        return 0
    frame_bytes = frame_size(buf, start) + SIZE_BYTES
    return frame_bytes if frame_bytes > READ_BUFFER_BYTES else 0


def first_large_bytes(frame_bytes: int, arrived_bytes: int) -> int:
    """Return the first grant for a large frame: more if more has arrived."""
    return min(frame_bytes, max(FIRST_LARGE_BYTES, 4 * arrived_bytes))
