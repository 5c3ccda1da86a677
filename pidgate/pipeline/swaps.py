"""Atomic replacement of results by a small commit file.

    scratch/<begun>-<random>/written/...    new files at their paths below the root; readers ignore them
    scratch/<begun>-<random>/commit.json    all files are complete: from now on they are current
    scratch/<begun>-<random>/replaced/...   the replaced files, until all moves are done

A kill before the commit leaves the old files in place. After a kill between the renames, readers find the new
files where they were written (`where`), and a later run moves them. If a rename is a copy, the written files
stay complete until all are in place and the commit is removed. Knows files and folders, but no tables.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pidgate.pipeline.errors import TableUnreadable
from pidgate.pipeline.files import Files

SCRATCH: Final = "scratch"
_COMMIT: Final = "commit.json"
MOVING_MS: Final = 600_000
"""Time that a committed run may still take to move its files; other runs leave it alone."""
RUNNING_MS: Final = 24 * 3_600_000
"""Age at which an uncommitted run counts as killed."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A commit: these places are found below `folder` until they have moved."""

    folder: str
    places: tuple[str, ...]
    committed_ms: int

    def written(self, path: str) -> str:
        return f"{self.folder}/written/{path}"


class Swaps:
    """All runs below one root."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def begin(self) -> str:
        """Return the path of a new folder for a run; finish and remove killed runs."""
        now_ms = time.time_ns() // 1_000_000
        committed = self._committed()
        for swap in reversed(committed):
            if now_ms - swap.committed_ms >= MOVING_MS:
                self._move(swap)
        kept = {swap.folder for swap in committed}
        for name in self._files.names(SCRATCH):
            begun, _, _ = name.partition("-")
            is_killed = begun.isdigit() and now_ms - int(begun) >= RUNNING_MS
            if is_killed and f"{SCRATCH}/{name}" not in kept:
                self._files.remove(f"{SCRATCH}/{name}")
        return f"{SCRATCH}/{now_ms:013d}-{secrets.token_hex(4)}"

    def commit(self, folder: str, places: Sequence[str]) -> None:
        """Make the places in `folder` current from now on, then move them."""
        before = self._committed()
        at_ms = max([time.time_ns() // 1_000_000, *(swap.committed_ms + 1 for swap in before)])
        swap = Swap(folder, tuple(places), at_ms)
        text = json.dumps({"places": swap.places, "committed_ms": at_ms})
        self._files.write(f"{folder}/{_COMMIT}", text)
        # Otherwise older commits would become current again after this one has moved.
        for older in before:
            for place in swap.places:
                self._files.remove(older.written(place))
        self._move(swap)

    def where(self, path: str) -> str:
        """Return a path's current location: its place, or the folder of an interrupted commit."""
        for swap in self._committed():
            for place in swap.places:
                if f"{path}/".startswith(f"{place}/") and self._files.exists(swap.written(place)):
                    return swap.written(path)
        return path

    def _move(self, swap: Swap) -> None:
        for place in swap.places:
            self._files.swap(swap.written(place), place, f"{swap.folder}/replaced/{place}")
        # In a store the written files still exist, and deleting a folder is not atomic. Removing the commit
        # first keeps readers away.
        self._files.remove(f"{swap.folder}/{_COMMIT}")
        self._files.remove(swap.folder)

    def _committed(self) -> list[Swap]:
        """Return the newest first."""
        folders = [f"{SCRATCH}/{name}" for name in self._files.names(SCRATCH)]
        found = [self._read(folder) for folder in folders if self._files.exists(f"{folder}/{_COMMIT}")]
        return sorted(found, key=lambda swap: -swap.committed_ms)

    def _read(self, folder: str) -> Swap:
        path = f"{folder}/{_COMMIT}"
        try:
            told = json.loads(self._files.read(path))
            return Swap(folder, tuple(told["places"]), int(told["committed_ms"]))
        except (ValueError, KeyError, TypeError) as problem:
            raise TableUnreadable(
                f"{self._files.full(path)} was not written by a job ({problem}). Remove its folder, and run the "
                "jobs again."
            ) from problem
