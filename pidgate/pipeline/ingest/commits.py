"""Commits: each is a small file that names staged files, their places, and the files that they replace.

Version n is in one of these states. Only a file's presence decides, never its absence:

    state       n.json    staged files             what happens next
    ---------   -------   ----------------------   ---------------------------------------------------------
    staged      absent    in staging/n-random      a commit needs all of them, and creates n.json
    committed   present   in staging, or moved     each is moved to its place; the next start does the rest
    finished    no moves  all at their places      its folder in staging is removed; places may be deleted
    lost        another   in staging/n-random      its owner's commit fails; later it is removed as garbage

`create` lets one process write n.json (a hard link, or If-None-Match in a store), so of two ingests one
commits and the other ends with OtherWriter. Staging folders are removed only once their version is committed:
their owners can no longer commit.

Each move affects one file and may be repeated, also by two processes: the replaced files are removed first, so
that readers see the old rows, briefly fewer, then the new ones, and none twice. Then the new file is renamed; in
a store that is a copy and a deletion. A move without its source is done if its target is there, and an error if
it is not. Targets have the version in their names, so commits never share one.

    ingest/commits/0000000007.json
    ingest/staging/0000000008-1a2b3c4d/...
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from pidgate.pipeline.errors import OtherWriter, PipelineError, TableUnreadable
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest.seqs import Loss

WORK: Final = "ingest"
_COMMITS, _STAGING = f"{WORK}/commits", f"{WORK}/staging"
_KEPT = 5
"""Older commits are kept for debugging only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Progress of ingest, carried on by every commit."""

    batch: int = -1
    """Number of the last batch."""
    topic_id: str = ""
    next_offsets: dict[str, int] = field(default_factory=dict)
    """By partition, or by landed file."""
    losses: tuple[Loss, ...] = ()

    def expected(self, topic_id: str) -> dict[str, int]:
        """Return the next offset of each partition; none for a recreated topic."""
        return self.next_offsets if self.topic_id == topic_id else {}


@dataclass(frozen=True, slots=True)
class Move:
    """A staged file, its place, and the files that it replaces."""

    source: str
    target: str
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A position and the moves that make it visible, until they are done."""

    version: int
    position: Position
    moves: tuple[Move, ...] = ()

    def to_json(self) -> str:
        return COMMIT.dump_json(self, indent=1).decode()


COMMIT: Final = TypeAdapter(Commit)


class CommitLog:
    """The commits below one root. `single_writer`: the operator guarantees that no other process commits."""

    def __init__(self, files: Files, *, single_writer: bool = False) -> None:
        self._files = files
        self._write = files.write if single_writer else files.create
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

    def moves(
        self, staged: Mapping[str, tuple[str, ...]], staging: str, name: str, place: str = ""
    ) -> list[Move]:
        """Return moves of staged files, with those each replaces, to folders below `place`."""
        found = []
        for number, (path, replaces) in enumerate(sorted(staged.items())):
            folder = f"{place}/{path.removeprefix(f'{staging}/')}".rpartition("/")[0].strip("/")
            target = f"{folder}/{name}-{self.next_version:010d}-{number}.parquet"
            found.append(Move(path, target, replaces))
        return found

    def replacing(self, staging: str, tables: Mapping[str, pa.Table]) -> list[Move]:
        """Write tables by folder; return the moves that replace all files there."""
        staged = {}
        for folder, table in tables.items():
            path = f"{staging}/{folder}/whole.parquet"
            self._files.write_table(path, table)
            staged[path] = tuple(self._files.data_files(folder))
        return self.moves(staged, staging, "whole")

    def commit(self, position: Position, staging: str, moves: Iterable[Move]) -> Commit:
        """Write the commit, which takes effect with its file, and execute it.

        Raises TableUnreadable if a staged file is missing, OtherWriter if another process was first.
        """
        made = Commit(version=self.next_version, position=position, moves=tuple(moves))
        staged = self._files.sizes(staging)
        if gone := [move.source for move in made.moves if move.source not in staged]:
            raise self._missing(
                f"{self._files.full(gone[0])} was staged and is gone: something else removes files below {WORK}/. The "
                "batch was not ingested. Run ingest again."
            )
        try:
            self._write(self._path(made.version), made.to_json())
        except FileExistsError as error:
            raise self.overtaken() from error
        if self.is_overtaken(made.version):
            # This version was committed so long ago that its file was removed; readers use the newest.
            self._files.remove(self._path(made.version))
            raise self.overtaken()
        self.latest = made
        self.finish()
        return made

    def finish(self) -> None:
        """Execute the rest of the latest commit, and remove garbage. Raises TableUnreadable, OtherWriter."""
        if self.latest is not None and self.latest.moves:
            for move in self.latest.moves:
                self._execute(move)
            self.latest = replace(self.latest, moves=())
            self._files.replace(self._path(self.latest.version), self.latest.to_json())
        for name in self._files.names(_STAGING):
            if name < f"{self.next_version:010d}":
                # Its owner may still write there; a later commit removes the rest.
                with suppress(OSError):
                    self._files.remove(f"{_STAGING}/{name}")
        for name in self._files.names(_COMMITS)[:-_KEPT]:
            self._files.remove(f"{_COMMITS}/{name}")

    def is_overtaken(self, version: int | None = None) -> bool:
        """Return whether another process has committed since."""
        names = self._commits()
        mine = self.next_version - 1 if version is None else version
        return bool(names) and names[-1] > f"{mine:010d}.json"

    def overtaken(self) -> OtherWriter:
        """Return the error of a run that lost to another one."""
        return OtherWriter(
            f"another ingest committed to {self._files.full('')} at the same time. Its batch is in the tables, this "
            "one's was not ingested, and nothing is lost. Run one ingest per --tables."
        )

    def _execute(self, move: Move) -> None:
        if self._files.exists(move.source):
            for path in move.replaces:
                self._files.remove(path)
            try:
                self._files.rename(move.source, move.target)
            # Another ingest executes the same commit.
            except OSError:
                if not self._files.exists(move.target):
                    raise
        elif not self._files.exists(move.target):
            raise self._missing(
                f"{self._files.full(move.target)} is missing, and {move.source} too: a committed file was removed. "
                f"Restore the tables together with {WORK}/ from one backup, or ingest into new --tables."
            )

    def _missing(self, text: str) -> PipelineError:
        """Return the error for missing files: another ingest, or this text."""
        return self.overtaken() if self.is_overtaken() else TableUnreadable(text)

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
            return COMMIT.validate_json(self._files.read(path))
        except ValidationError as problem:
            reason = problem.errors()[0]["msg"]
            raise TableUnreadable(
                f"{self._files.full(path)} was not written by ingest ({reason}). Restore the folder {WORK}/ together "
                "with the tables from one backup, or ingest into new --tables."
            ) from problem
