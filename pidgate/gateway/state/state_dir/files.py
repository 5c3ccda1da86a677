"""Names, listing, creation and removal of the files in a state directory.

    lock                       held while a gateway lives (lock.py)
    snapshot-<generation>      the state (snapshot.py); a generation is a number that only grows
    snapshot-<...>.partial     a snapshot that is being written, or was left by a kill
    snapshot-<...>.damaged-<n> set aside because it could not be read; the newest three are kept

A start needs the newest readable snapshot. This module must not know their contents. Everything here blocks.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DAMAGED_FILES_KEPT: Final = 3
"""Enough for an investigation, and repeated restarts cannot fill a disk."""

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""User names are personal data."""

_SNAPSHOT: Final = re.compile(r"snapshot-(\d{8,18})")
_PARTIAL: Final = re.compile(r"snapshot-\d{8,18}\.partial")
_DAMAGED: Final = re.compile(r"snapshot-(\d{8,18})\.damaged-(\d{1,9})")


def snapshot_name(generation: int) -> str:
    return f"snapshot-{generation:08d}"


def partial_name(generation: int) -> str:
    return f"{snapshot_name(generation)}.partial"


@dataclass(frozen=True, slots=True)
class Listing:
    """Files of a directory: generations in rising order, damaged files by their number, oldest first."""

    snapshots: list[int]
    partial: list[str]
    damaged: list[tuple[int, str]]
    newest_generation: int
    """Highest generation of all files, including damaged ones; 0 without files."""


def listing(directory: Path) -> Listing:
    """Return the directory's files, without those of other names. Raises OSError."""
    snapshots, partial, damaged, newest = [], [], [], 0
    for name in os.listdir(directory):
        if match := _SNAPSHOT.fullmatch(name):
            snapshots.append(int(match[1]))
        elif _PARTIAL.fullmatch(name):
            partial.append(name)
        elif match := _DAMAGED.fullmatch(name):
            damaged.append((int(match[2]), name))
            newest = max(newest, int(match[1]))
    newest = max([newest, *snapshots])
    return Listing(sorted(snapshots), partial, sorted(damaged), newest)


def make_directory(directory: Path) -> None:
    """Create the directory, accessible to the gateway's user only.

    An existing one keeps its mode. Raises OSError.
    """
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)


def create(path: Path) -> int:
    """Open a new, empty file for writing, replacing one of the same name. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, FILE_MODE)


def write_all(fd: int, data: bytes | bytearray) -> None:
    """Write all of `data`. Raises OSError, possibly after writing a part."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def sync_directory(directory: Path) -> None:
    """Make a rename survive a power cut. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def set_aside(directory: Path, name: str) -> str:
    """Rename a damaged file; return its new name. Raises OSError."""
    new_name = _next_damaged_name(directory, name)
    os.rename(directory / name, directory / new_name)
    _keep_newest_damaged(directory)
    return new_name


def retire(directory: Path, before_generation: int) -> None:
    """Delete snapshots of earlier generations. Raises OSError."""
    for generation in listing(directory).snapshots:
        if generation < before_generation:
            (directory / snapshot_name(generation)).unlink(missing_ok=True)


def _next_damaged_name(directory: Path, name: str) -> str:
    damaged = listing(directory).damaged
    number = damaged[-1][0] + 1 if damaged else 1
    return f"{name}.damaged-{number}"


def _keep_newest_damaged(directory: Path) -> None:
    for _, name in listing(directory).damaged[:-DAMAGED_FILES_KEPT]:
        (directory / name).unlink(missing_ok=True)
