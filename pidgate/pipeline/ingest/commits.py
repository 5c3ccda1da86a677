"""Commits: each is a small file that lists files to remove and renames that make new files visible.

Files are first written to ingest/staging, which readers ignore. Then the commit is written, then executed. A
kill before the commit changes nothing and leaves garbage in staging. After a kill behind it, the next start
executes the rest. Each step affects one file and is idempotent, even if a rename is a copy and a deletion. At
most one commit, the latest, is unfinished.

    removes  replaced files; first, so that readers see the old rows, briefly fewer, then the new ones,
             and none twice
    moves    a new file to its place; its name has the commit's version, so commits never share one

    ingest/commits/0000000007.json
    ingest/state/0000000007-.../  observed numbers (columns.INTERVALS) as of that commit
    ingest/staging/               garbage unless the latest commit names it
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter, ValidationError

from pidgate.pipeline.errors import TableUnreadable
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest.seqs import Loss

WORK: Final = "ingest"
_COMMITS, _STATE, _STAGING = (f"{WORK}/{name}" for name in ("commits", "state", "staging"))
_KEPT = 5
"""Older commits are kept for debugging only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Progress of ingest, carried on by every commit."""

    batch: int = -1
    """Number of the last batch."""
    topic_id: str = ""
    next_offsets: dict[int, int] = field(default_factory=dict)
    topic_ms: int = 0
    """Highest observed append time."""
    state: str = ""
    """Folder of the intervals; empty if there is none yet."""
    losses: tuple[Loss, ...] = ()

    def expected(self, topic_id: str) -> dict[int, int]:
        """Return the next offset of each partition; none for a recreated topic."""
        return self.next_offsets if self.topic_id == topic_id else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A position and the file operations that make it visible."""

    version: int
    position: Position
    moves: tuple[tuple[str, str], ...] = ()
    removes: tuple[str, ...] = ()

    def to_json(self) -> str:
        return _COMMIT.dump_json(self, indent=1).decode()

    @classmethod
    def from_json(cls, text: str) -> Commit:
        """Parse a commit. Raises ValidationError."""
        return _COMMIT.validate_json(text)


_COMMIT = TypeAdapter(Commit)


class CommitLog:
    """The commits below one root. Only one process may write it at a time."""

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
        """Return the path of a new folder for the next commit's files, unique per attempt."""
        return f"{_STAGING}/{self.next_version:010d}-{uuid.uuid4().hex[:8]}"

    def new_state(self) -> str:
        """Return the path of a new folder for the intervals, unique per attempt."""
        return f"{_STATE}/{self.next_version:010d}-{uuid.uuid4().hex[:8]}"

    def moves(self, paths: Iterable[str], staged: str, name: str, place: str = "") -> list[tuple[str, str]]:
        """Return the renames of staged files to folders below `place`, with names unique to the next commit."""
        found = []
        for number, path in enumerate(sorted(paths)):
            folder = f"{place}/{path.removeprefix(f'{staged}/')}".rpartition("/")[0].strip("/")
            found.append((path, f"{folder}/{name}-{self.next_version:010d}-{number}.parquet"))
        return found

    def commit(
        self,
        position: Position,
        *,
        moves: Iterable[tuple[str, str]] = (),
        removes: Iterable[str] = (),
    ) -> Commit:
        """Write the commit, which takes effect with its file, and execute it."""
        made = Commit(
            version=self.next_version, position=position, moves=tuple(moves), removes=tuple(removes)
        )
        self._files.write(self._path(made.version), made.to_json())
        self.latest = made
        self.finish()
        return made

    def finish(self) -> None:
        """Execute the rest of the latest commit, and remove garbage."""
        if (latest := self.latest) is not None:
            for path in latest.removes:
                self._files.remove(path)
            for source, target in latest.moves:
                if self._files.exists(source):
                    self._files.rename(source, target)
        self._tidy()

    def _tidy(self) -> None:
        self._files.remove(_STAGING)
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
                f"{self._files.full(path)} was not written by ingest ({reason}). Restore the folder {WORK}/ together "
                "with the tables from one backup, or ingest into new --tables."
            ) from problem
