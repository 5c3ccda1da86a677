"""A memory cgroup for one process, so that the kernel kills it when it takes more than it may. Needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path("/sys/fs/cgroup")


class MemoryGroup:
    """The group of one process at a time; version 1 or 2 of cgroups."""

    def __init__(self, path: Path) -> None:
        self._path = path
        is_first_version = (path / "memory.limit_in_bytes").exists()
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if is_first_version
            else ("memory.max", "memory.current")
        )
        self._limit, self._usage = (path / name for name in names)

    def take(self, pid: int) -> None:
        """Put a process into the group: what it takes from now on counts."""
        (self._path / "cgroup.procs").write_text(str(pid))

    def leave(self, more_bytes: int) -> None:
        """Let the processes take so many bytes more."""
        self._limit.write_text(str(int(self._usage.read_text()) + more_bytes))


@contextmanager
def memory_group() -> Iterator[MemoryGroup]:
    """Skips the test where no group can be made."""
    parent = ROOT / "memory" if (ROOT / "memory").is_dir() else ROOT
    path = parent / f"pidgate-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield MemoryGroup(path)
    finally:
        path.rmdir()
