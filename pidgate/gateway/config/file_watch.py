"""Changes of a file, noticed by polling."""

import os
from pathlib import Path
from typing import Final

LOOK_EVERY_S: Final = 1.0

Signature = tuple[int, int, int, int]
"""Device, inode, size and time of change (ns) of the file that the path leads to in the end."""


def signature(path: Path) -> Signature | None:
    """Return the signature of a file; None when there is none, or it is out of reach."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class FileWatch:
    """Watch over a file, by polling: a swapped symbolic link, a rename and a network file system all look alike.

    `mark` it and read it, then poll `has_changed`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marked: Signature | None = None
        self._seen: Signature | None = None

    def mark(self) -> None:
        """Note the file as it is about to be read; what is written to it from here on is a change."""
        self._marked = self._seen = signature(self._path)

    def is_still(self) -> bool:
        """Return whether the file is as it was marked."""
        return signature(self._path) == self._marked

    def has_changed(self) -> bool:
        """Return whether the file is not the marked one, and the same as at the last call: nobody is writing to it."""
        now = signature(self._path)
        settled, self._seen = now == self._seen, now
        return settled and now != self._marked
