"""Checksummed frames, the parts of a snapshot file.

All numbers are little-endian.

    frame  kind (u8), length of the head (u32), length of the body (u64),
           head (a JSON object), body (plain bytes), CRC-32 of all before it (u32)

The checksum is last, so that a body is copied, summed and written in pieces. This module must not know the
meaning of frames. Everything here blocks, except `encode`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import IO, Any, Final, NamedTuple
from zlib import crc32

from pidgate.gateway.state.state_dir import files

_START: Final = Struct("<BIQ")
_CRC: Final = Struct("<I")
_LEAST_BYTES: Final = _START.size + _CRC.size

PIECE_BYTES: Final = 256 * 1024
"""Copied while holding the GIL, in about 50 us; summing and writing release it."""
WRITE_BYTES: Final = 1024 * 1024


class FrameDamaged(Exception):
    """A frame is not as it was written. The text is the reason."""


class FrameTorn(Exception):
    """The file ends within a frame, as after a kill of its writer."""


class Frame(NamedTuple):
    """A frame read from a file. `end`: its end in the file."""

    kind: int
    head: dict[str, Any]
    body: bytes
    end: int


class Encoded(NamedTuple):
    """A frame to be written: its start with its head, and the parts of its body."""

    start: bytes
    body: Sequence[bytes | memoryview]


def encode(kind: int, head: dict[str, Any], body: Sequence[bytes | memoryview] = ()) -> Encoded:
    """Encode a head. The body is neither read nor copied."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return Encoded(_START.pack(kind, len(text), sum(map(len, body))) + text, body)


def write(fd: int, encoded: Iterable[Encoded]) -> int:
    """Write frames; return their size in bytes. Raises OSError."""
    waiting, size = bytearray(), 0
    for piece in _pieces(encoded):
        size += len(piece)
        waiting += piece
        if len(waiting) >= WRITE_BYTES:
            files.write_all(fd, waiting)
            waiting.clear()
    files.write_all(fd, waiting)
    return size


def _pieces(encoded: Iterable[Encoded]) -> Iterator[bytes]:
    for start, body in encoded:
        crc = crc32(start)
        yield start
        for part in body:
            for at in range(0, len(part), PIECE_BYTES):
                # Copied, because bits of a filter may be set before it is written.
                piece = bytes(part[at : at + PIECE_BYTES])
                crc = crc32(piece, crc)
                yield piece
        yield _CRC.pack(crc)


def read(file: IO[bytes], size: int) -> Iterator[Frame]:
    """Yield the frames from the file's position on. Raises FrameDamaged, FrameTorn, OSError.

    `size`: of the whole file. It prevents a damaged length from allocating gigabytes of memory.
    """
    at = file.tell()
    while at < size:
        if size - at < _LEAST_BYTES:
            raise FrameTorn
        start = file.read(_START.size)
        kind, head_bytes, body_bytes = _START.unpack(start)
        at += _LEAST_BYTES + head_bytes + body_bytes
        if at > size:
            raise FrameTorn
        head, body = file.read(head_bytes), file.read(body_bytes)
        (crc,) = _CRC.unpack(file.read(_CRC.size))
        if crc != crc32(body, crc32(head, crc32(start))):
            raise FrameDamaged("the checksum of a frame is wrong")
        yield Frame(kind, _object(head), body, at)


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise FrameDamaged(f"the head of a frame is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise FrameDamaged("the head of a frame is no JSON object")
    return found
