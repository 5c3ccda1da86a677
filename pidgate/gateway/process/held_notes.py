"""File of the held beginnings: words of 64 bits that all workers of a gateway map into memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

from pidgate.gateway.process import mapped_files
from pidgate.quota.held_beginnings import WORDS, HeldBeginnings

_BYTES: Final = 8 * WORDS


def notes_path(socket_path: Path) -> Path:
    """Return the path of the file for a state owner that listens at `socket_path`."""
    return socket_path.with_name("held-beginnings")


def create(path: Path) -> None:
    """Make the file, once for all workers of a gateway's run. Raises OSError, also when it exists."""
    mapped_files.make(path, _BYTES)


def shared(path: Path) -> HeldBeginnings:
    """Return the notes that all workers see. Raises OSError, also when the file has another size."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size != _BYTES:
            raise OSError(f"{path} does not have {_BYTES} bytes")
        return HeldBeginnings(memoryview(mmap.mmap(descriptor, _BYTES)).cast("q"))
    finally:
        os.close(descriptor)


def private() -> HeldBeginnings:
    """Return notes that only this worker sees: better than none where the file is missing."""
    return HeldBeginnings(memoryview(mmap.mmap(-1, _BYTES)).cast("q"))
