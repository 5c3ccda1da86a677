"""Detection of file changes by polling."""

import os
from pathlib import Path
from typing import Final

LOOK_EVERY_S: Final = 1.0

Signature = tuple[int, int, int, int]
"""Device, inode, size and modification time (ns) of the file, with symbolic links resolved."""


def signature(path: Path) -> Signature | None:
    """Return the signature of a file; None when it is missing or unreadable."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class FileWatch:
    """Detects file changes by polling, which covers symbolic links, renames and network file systems alike.

    Call `mark` and read the file, then poll `has_changed`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marked: Signature | None = None
        self._seen: Signature | None = None

    def mark(self) -> None:
        """Record the file's signature before reading it; later writes count as changes."""
        self._marked = self._seen = signature(self._path)

    def is_still(self) -> bool:
        """Return whether the file is as it was marked."""
        return signature(self._path) == self._marked

    def has_changed(self) -> bool:
        """Return whether the file has changed since `mark` but not since the last call: its writer is done."""
        now = signature(self._path)
        settled, self._seen = now == self._seen, now
        return settled and now != self._marked
