"""Commits: one small file each, which lists the files that go and the renames that make written ones visible.

Everything is written where no reader looks (ingest/staging), then a commit is written, then it is finished. Killed
before the commit: nothing happened, and what was staged is rubbish. Killed after it: the next start does what is left.
All of it is done file by file, each is done or not, and doing it again is harmless, also where a rename is a copy and
a deletion. There is only ever one unfinished commit: the latest.

    removes  files that others replace; first, so that readers see the old rows, for an instant fewer, then the new
             ones, and none twice
    moves    a new file takes its place; its name carries the commit's version, so no two commits share one

    ingest/commits/0000000007.json
    ingest/state/0000000007-.../  the numbers seen (columns.INTERVALS), as of that commit
    ingest/staging/               rubbish, unless the latest commit names it
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
"""Older commits are of no use but to whoever looks into what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Progress of ingest. Every commit carries it on."""

    batch: int = -1
    """Number of the last batch."""
    topic_id: str = ""
    next_offsets: dict[int, int] = field(default_factory=dict)
    topic_ms: int = 0
    """The highest time of append that was seen."""
    state: str = ""
    """Folder of the intervals; empty: none yet."""
    losses: tuple[Loss, ...] = ()

    def expected(self, topic_id: str) -> dict[int, int]:
        """Return the next offset of each partition; a topic that was made anew begins anew."""
        return self.next_offsets if self.topic_id == topic_id else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A position, and what makes it visible."""

    version: int
    position: Position
    moves: tuple[tuple[str, str], ...] = ()
    removes: tuple[str, ...] = ()

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

    def moves(self, paths: Iterable[str], staged: str, name: str, place: str = "") -> list[tuple[str, str]]:
        """Return the renames of staged files to their folders below `place`, by names only the next commit has."""
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
        """Write the commit, from when on it holds, and finish it."""
        made = Commit(
            version=self.next_version, position=position, moves=tuple(moves), removes=tuple(removes)
        )
        self._files.write(self._path(made.version), made.to_json())
        self.latest = made
        self.finish()
        return made

    def finish(self) -> None:
        """Do what is left of the latest commit, and remove what nobody needs."""
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
                f"{self._files.full(path)} is not what ingest wrote ({reason}). Restore the folder {WORK}/ together "
                "with the tables from one backup, or ingest into new --tables."
            ) from problem
