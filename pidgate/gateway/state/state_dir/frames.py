"""The container of a snapshot: a prelude and checksummed frames, so that no byte of it can change unnoticed.

All numbers little-endian.

    prelude  magic "pidgate\\n" (8), version (u16), readable_since (u16), CRC-32 of those 12 bytes (u32)
    frame    kind (u8), head length (u32), body length (u32), CRC-32 of all that and of head and body (u32),
             head (a JSON object), body (plain bytes)
    end      a frame of kind 255 whose head is {"frames": how many came before it}; nothing follows

Versions: `version` is what wrote the file, `readable_since` the oldest version that
understands it. A version that only adds keys to heads, or frames of a new kind, leaves `readable_since` where it
is: unknown keys and kinds are passed over. Must not know what the frames mean. Everything here blocks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import IO, Any, Final
from zlib import crc32

MAGIC: Final = b"pidgate\n"
END_KIND: Final = 255

_PRELUDE: Final = Struct("<8sHH")
_CRC: Final = Struct("<I")
_FRAME: Final = Struct("<BII")

PRELUDE_BYTES: Final = _PRELUDE.size + _CRC.size
_FRAME_START_BYTES: Final = _FRAME.size + _CRC.size


class SnapshotUnreadable(Exception):
    """A snapshot cannot be used; says why, for the log."""


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    head: dict[str, Any]
    body: bytes


def prelude(version: int, readable_since: int) -> bytes:
    start = _PRELUDE.pack(MAGIC, version, readable_since)
    return start + _CRC.pack(crc32(start))


def frame(kind: int, head: dict[str, Any], parts: Sequence[bytes] = ()) -> list[bytes]:
    """Return one frame in pieces: bodies are large, and joining them would copy them."""
    text = json.dumps(head, separators=(",", ":")).encode()
    lengths = _FRAME.pack(kind, len(text), sum(map(len, parts)))
    crc = crc32(text, crc32(lengths))
    for part in parts:
        crc = crc32(part, crc)
    return [lengths, _CRC.pack(crc), text, *parts]


def end(frames_before: int) -> list[bytes]:
    return frame(END_KIND, {"frames": frames_before})


def read(path: Path, reader_version: int) -> Iterator[Frame]:
    """Yield all frames but the end. Raises SnapshotUnreadable, OSError.

    It may raise at the very end, so nothing may be used before all of it is read.
    """
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size
        left -= _read_prelude(file, reader_version)
        count = 0
        while True:
            found, size = _read_frame(file, left)
            left -= size
            if found.kind == END_KIND:
                break
            count += 1
            yield found
        if found.head.get("frames") != count:
            raise SnapshotUnreadable(f"has {count} frames where {found.head.get('frames')} were written")
        if left:
            raise SnapshotUnreadable(f"goes on for {left} bytes after its end")


def _read_prelude(file: IO[bytes], reader_version: int) -> int:
    data = file.read(PRELUDE_BYTES)
    if len(data) < PRELUDE_BYTES or not data.startswith(MAGIC):
        raise SnapshotUnreadable("does not begin as a snapshot of pidgate")
    _, version, readable_since = _PRELUDE.unpack_from(data)
    if _CRC.unpack_from(data, _PRELUDE.size)[0] != crc32(data[: _PRELUDE.size]):
        raise SnapshotUnreadable("the checksum of its first bytes is wrong")
    if readable_since > reader_version:
        raise SnapshotUnreadable(
            f"was written by a newer version (format {version}, for readers of {readable_since} and later; "
            f"this one reads up to {reader_version})"
        )
    return PRELUDE_BYTES


def _read_frame(file: IO[bytes], left: int) -> tuple[Frame, int]:
    start = file.read(_FRAME_START_BYTES)
    if len(start) < _FRAME_START_BYTES:
        raise SnapshotUnreadable("ends too early")
    kind, head_bytes, body_bytes = _FRAME.unpack_from(start)
    size = _FRAME_START_BYTES + head_bytes + body_bytes
    # Before anything is read: damaged lengths must not ask for gigabytes of memory.
    if size > left:
        raise SnapshotUnreadable("ends too early, or the length of a frame is damaged")
    head, body = file.read(head_bytes), file.read(body_bytes)
    crc = crc32(body, crc32(head, crc32(start[: _FRAME.size])))
    if _CRC.unpack_from(start, _FRAME.size)[0] != crc:
        raise SnapshotUnreadable("the checksum of a frame is wrong")
    return Frame(kind, _object(head), body), size


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SnapshotUnreadable(f"the head of a frame is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise SnapshotUnreadable("the head of a frame is no JSON object")
    return found
