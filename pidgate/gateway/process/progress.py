"""Progress counter of the state owner, in a file that all workers map: it moves as long as its event loop turns.

Its reader knows a state owner that is busy, for which requests wait, from one that is gone.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final

BEAT_S: Final = 0.1
"""An idle state owner moves its counter so often."""
GONE_S: Final = 1.0
"""A counter that stands still for so long is that of a state owner that hangs, or is dead."""

_COUNTER: Final = Struct("<Q")


def progress_path(socket_path: Path) -> Path:
    """Return the path of the counter of a state owner that listens at `socket_path`."""
    return socket_path.with_name("progress")


class Progress:
    """The counter, as its owner moves it. A successor goes on with the same file."""

    def __init__(self, path: Path) -> None:
        """Map the file. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, _COUNTER.size)
            self._map = mmap.mmap(descriptor, _COUNTER.size)
        finally:
            os.close(descriptor)
        (self._count,) = _COUNTER.unpack_from(self._map)

    def advance(self) -> None:
        """Move it."""
        self._count = (self._count + 1) & 0xFFFF_FFFF_FFFF_FFFF
        _COUNTER.pack_into(self._map, 0, self._count)


class ProgressWatch:
    """The counter as a worker sees it, and since when it has stood still. What is received counts as a move."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self._seen: int | None = None
        self._since_s = 0.0

    def moved(self, now_s: float) -> None:
        """Note a sign of life."""
        self._since_s = now_s

    def stands_still(self, now_s: float) -> bool:
        """Look at the counter; return whether it has stood still for GONE_S."""
        count = self._read()
        if count != self._seen:
            self._seen, self._since_s = count, now_s
        return now_s - self._since_s >= GONE_S

    def _read(self) -> int | None:
        if self._map is None:
            try:
                with self._path.open("rb") as file:
                    self._map = mmap.mmap(file.fileno(), _COUNTER.size, prot=mmap.PROT_READ)
            except (OSError, ValueError):
                return None
        count: int = _COUNTER.unpack_from(self._map)[0]
        return count
