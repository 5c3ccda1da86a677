"""Making of files that several processes map into memory."""

from __future__ import annotations

import os
from pathlib import Path


def make(path: Path, size_bytes: int, head: bytes = b"") -> None:
    """Make a file of zeroes with `head` in front, for its owner alone. Raises OSError, also when it exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        # Written, not only made longer: on a full disk that fails here, and not with a SIGBUS in a worker later.
        left = size_bytes
        while left:
            left -= os.write(descriptor, bytes(min(left, 2**20)))
        os.pwrite(descriptor, head, 0)
    finally:
        os.close(descriptor)
