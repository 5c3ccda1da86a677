"""Whether a file is another one than the one that was read. Knows nothing of what is in it.

Asked by polling: an orchestrator that swaps a symbolic link, an editor that renames, and a network file system all
look alike that way.
"""

from __future__ import annotations

import os
from pathlib import Path

Signature = tuple[int, int, int, int]
"""Of the file that the path leads to in the end: device, inode, size, time of change in nanoseconds."""


def signature(path: Path) -> Signature | None:
    """None: there is no such file, or it cannot be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class FileWatch:
    """`take` it and read it, then ask `has_changed` now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken: Signature | None = None
        self._seen: Signature | None = None

    def take(self) -> None:
        """The file is about to be read as it is now. What is written to it from here on is a change."""
        self._taken = self._seen = signature(self._path)

    def is_still(self) -> bool:
        """Whether it is as it was when it was taken."""
        return signature(self._path) == self._taken

    def has_changed(self) -> bool:
        """Whether it is another one than was taken, and the same as at the last look: nobody is writing to it."""
        now = signature(self._path)
        settled, self._seen = now == self._seen, now
        return settled and now != self._taken
