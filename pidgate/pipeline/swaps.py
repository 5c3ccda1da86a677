"""The one moment in which what a run has written takes the place of what was there: a small file, the commit.

    scratch/<begun>-<random>/written/...    as it shall lie below the root; no reader looks there
    scratch/<begun>-<random>/commit.json    all of it is whole: from now on it is what there is
    scratch/<begun>-<random>/replaced/...   what it takes the place of, until all of it has moved

Killed before the commit: what was there is there, all of it. Killed after it, between the renames: readers find the
new where it was written (`where`), all of it, and a later run moves it. Where a rename is a copy, it stays whole where
it was written until all of it is at its place and the commit has gone. Knows files and folders, and nothing of tables.
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
"""Whoever has committed may still be moving for so long: others keep their hands off."""
RUNNING_MS: Final = 24 * 3_600_000
"""A run that began so long ago and has not committed was killed."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A commit: these places are to be found below `folder` until they have moved."""

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
        """Return a new folder for a run, not yet made; finish and remove what killed runs have left."""
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
        """Let what `folder` holds of these places be what there is, from this moment on; then move it there."""
        before = self._committed()
        at_ms = max([time.time_ns() // 1_000_000, *(swap.committed_ms + 1 for swap in before)])
        swap = Swap(folder, tuple(places), at_ms)
        text = json.dumps({"places": swap.places, "committed_ms": at_ms})
        self._files.write(f"{folder}/{_COMMIT}", text)
        # Or they would be what there is once this one has moved.
        for older in before:
            for place in swap.places:
                self._files.remove(older.written(place))
        self._move(swap)

    def where(self, path: str) -> str:
        """Return where a path lies now: at its place, or where a commit has it that was cut short."""
        for swap in self._committed():
            for place in swap.places:
                if f"{path}/".startswith(f"{place}/") and self._files.exists(swap.written(place)):
                    return swap.written(path)
        return path

    def _move(self, swap: Swap) -> None:
        for place in swap.places:
            self._files.swap(swap.written(place), place, f"{swap.folder}/replaced/{place}")
        # In a store what was written is still there, and a folder does not go at once: nobody shall read half of it.
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
                f"{self._files.full(path)} is not what a job wrote ({problem}). Remove its folder, and run the "
                "jobs again."
            ) from problem
