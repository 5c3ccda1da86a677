"""Commits: one small file each, which lists the renames that make written data visible.

Everything is written where no reader looks (ingest/staging), then a commit is written, then its renames are done.
Killed before the commit: nothing happened, and what was staged is rubbish. Killed after it: the next start finishes
the renames; each is done or not, so doing them again is harmless. There is only ever one unfinished commit: the latest.

    moves   a new file takes its place; its name carries the commit's version, so no two batches share one
    swaps   a folder takes the place of another: readers see the old one, for an instant none, then the new one;
            never both

    ingest/checkpoint/            Spark's: which offsets are whose batch
    ingest/commits/0000000007.json
    ingest/state/0000000007-.../  the numbers seen (columns.INTERVALS), as of that commit
    ingest/staging/  ingest/replaced/    rubbish, unless the latest commit names it
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter, ValidationError

from pidgate.pipeline.errors import TableUnreadable
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest.seqs import Loss

WORK: Final = "ingest"
_COMMITS, _STATE, _STAGING, _REPLACED = (
    f"{WORK}/{name}" for name in ("commits", "state", "staging", "replaced")
)
_KEPT = 5
"""Older commits are of no use but to whoever looks into what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Progress of ingest. Every commit carries it on."""

    query: str = ""
    """The streaming query (Spark's checkpoint) that the last batch was of."""
    batch: int = -1
    """Its last batch."""
    topic_id: str = ""
    next_offsets: dict[int, int] = field(default_factory=dict)
    topic_ms: int = 0
    """The highest time of append that was seen."""
    state: str = ""
    """Folder of the intervals; empty: none yet."""
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A position, and the renames that make it visible."""

    version: int
    position: Position
    moves: tuple[tuple[str, str], ...] = ()
    swaps: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> str:
        return _COMMIT.dump_json(self, indent=1).decode()

    @classmethod
    def from_json(cls, text: str) -> Commit:
        """Read a commit. Raises ValidationError."""
        return _COMMIT.validate_json(text)


_COMMIT = TypeAdapter(Commit)


class CommitLog:
    """The commits below one root. One process writes it at a time."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.latest = self._latest()

    @property
    def position(self) -> Position:
        return self.latest.position if self.latest else Position()

    @property
    def next_version(self) -> int:
        return self.latest.version + 1 if self.latest else 1

    def staging(self) -> str:
        """Return a new folder for what the next commit names; not yet made. No two attempts share one."""
        return f"{_STAGING}/{self.next_version:010d}-{uuid.uuid4().hex[:8]}"

    def new_state(self) -> str:
        """Return a new folder for the intervals, likewise."""
        return f"{_STATE}/{self.next_version:010d}-{uuid.uuid4().hex[:8]}"

    def commit(
        self,
        position: Position,
        *,
        moves: tuple[tuple[str, str], ...] = (),
        swaps: tuple[tuple[str, str], ...] = (),
    ) -> Commit:
        """Write the commit, from when on it holds, and finish it."""
        made = Commit(version=self.next_version, position=position, moves=moves, swaps=swaps)
        self._files.write(self._path(made.version), made.to_json())
        self.latest = made
        self.finish()
        return made

    def finish(self) -> None:
        """Do the renames left of the latest commit, and remove what nobody needs."""
        latest = self.latest
        if latest is not None:
            for source, target in latest.moves:
                if self._files.exists(source):
                    self._files.rename(source, target)
            for number, (source, target) in enumerate(latest.swaps):
                self._files.swap(source, target, f"{_REPLACED}/{latest.version:010d}-{number}")
        self._tidy()

    def _tidy(self) -> None:
        self._files.remove(_STAGING)
        self._files.remove(_REPLACED)
        state = self.position.state.rpartition("/")[2]
        for name in self._files.names(_STATE):
            if name != state:
                self._files.remove(f"{_STATE}/{name}")
        for name in self._commits()[:-_KEPT]:
            self._files.remove(f"{_COMMITS}/{name}")

    def _path(self, version: int) -> str:
        return f"{_COMMITS}/{version:010d}.json"

    def _commits(self) -> list[str]:
        return [name for name in self._files.names(_COMMITS) if name.endswith(".json")]

    def _latest(self) -> Commit | None:
        names = self._commits()
        if not names:
            return None
        path = f"{_COMMITS}/{names[-1]}"
        try:
            return Commit.from_json(self._files.read(path))
        except ValidationError as problem:
            reason = problem.errors()[0]["msg"]
            raise TableUnreadable(
                f"{self._files.full(path)} is not what ingest wrote ({reason}). Restore the folder {WORK}/ together "
                "with the tables from one backup, or ingest into new --tables."
            ) from problem
