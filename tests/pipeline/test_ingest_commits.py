"""Killed at any step of a commit, or beside another ingest: all of it is there once, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pidgate.pipeline.errors import OtherWriter, TableUnreadable
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest.commits import COMMIT, Commit, CommitLog, Move, Position
from pidgate.pipeline.ingest.seqs import Loss
from tests.pipeline.mortal import Killed, Mortal, files_on, put


def readable(root: Path) -> list[str]:
    """What a reader of the tables finds: the events in all files."""
    found = (path for table in ("events", "gaps") for path in (root / table).rglob("*.parquet"))
    return sorted(word for path in found for word in path.read_text().split())


Work = Callable[[Files, Path], None]
HOUR = "events/decision/day=2026-11-21/bucket=0"


def take_batch(files: Files, root: Path) -> None:
    """Two files of one batch."""
    log = CommitLog(files)
    log.finish()
    if log.position.batch == 1:
        return
    staging = log.staging()
    put(root, f"{staging}/{HOUR}/a.parquet", "e3 e4")
    put(root, f"{staging}/gaps/b.parquet", "e5")
    staged = {f"{staging}/{HOUR}/a.parquet": (), f"{staging}/gaps/b.parquet": ("gaps/old.parquet",)}
    log.commit(Position(batch=1), staging, log.moves(staged, staging, "batch"))


def compact(files: Files, root: Path) -> None:
    """The day's two files become one."""
    log = CommitLog(files)
    log.finish()
    before = tuple(files.data_files(HOUR))
    if len(before) == 1:
        return
    staging = log.staging()
    put(root, f"{staging}/{HOUR}/one.parquet", "e1 e2 e3 e4")
    moves = log.moves({f"{staging}/{HOUR}/one.parquet": before}, staging, "compacted")
    log.commit(log.position, staging, moves)


@pytest.mark.parametrize("is_store", [False, True], ids=["disk", "store"])
@pytest.mark.parametrize("work", [take_batch, compact])
def test_killed_at_each_step(tmp_path: Path, work: Work, is_store: bool) -> None:
    whole = ["e1", "e2", "e3", "e4", "e5"]
    for steps in range(100):
        root = tmp_path / str(steps)
        put(root, f"{HOUR}/batch-0.parquet", "e1 e2")
        if work is compact:
            put(root, f"{HOUR}/batch-1.parquet", "e3 e4")
            put(root, "gaps/batch-1.parquet", "e5")
        else:
            put(root, "gaps/old.parquet", "e5")
        mortal, again = (Mortal(lives, partial(readable, root), is_store) for lives in (steps, 1000))
        try:
            work(files_on(root, mortal, is_store=is_store), root)
        except Killed:
            work(files_on(root, again, is_store=is_store), root)
            looks = mortal.seen + again.seen
        else:
            break
        for look in looks:
            assert len(look) == len(set(look)), f"killed before step {steps}: a reader saw {look}"
        assert readable(root) == whole, f"killed before step {steps}"
        left = [path for path in (root / "ingest").rglob("*") if path.is_file() and "staging" in str(path)]
        assert left == []
    assert 3 < steps < 99


def test_without_the_commit_a_batch_is_there_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the check above would say of a log that forgets: names that no batch has for itself."""
    files = Files(str(tmp_path))
    take_batch(files, tmp_path)
    monkeypatch.setattr(CommitLog, "position", Position())
    monkeypatch.setattr(Files, "create", Files.replace)
    take_batch(files, tmp_path)
    assert len(readable(tmp_path)) > len(set(readable(tmp_path)))


def test_a_commit_comes_back_as_it_was(tmp_path: Path) -> None:
    loss = Loss(kafka_partition=2, first_offset=5, last_offset=8, resumed_ms=77, topic_id="t")
    position = Position(batch=3, topic_id="t", next_offsets={"0": 5, "11": 7}, losses=(loss,))
    made = Commit(version=4, position=position, moves=(Move("a", "b", ("c", "d")),))
    assert COMMIT.validate_json(made.to_json()) == made
    assert loss.missing == 4


def test_a_commit_that_is_none_is_named(tmp_path: Path) -> None:
    put(tmp_path, "ingest/commits/0000000003.json", "{}")
    with pytest.raises(TableUnreadable, match=r"0000000003\.json was not written by ingest"):
        CommitLog(Files(str(tmp_path)))


def staged_by(log: CommitLog, root: Path, words: str) -> tuple[str, list[Move]]:
    staging = log.staging()
    put(root, f"{staging}/{HOUR}/a.parquet", words)
    return staging, log.moves({f"{staging}/{HOUR}/a.parquet": ()}, staging, "batch")


def test_of_two_ingests_one_commits_and_the_other_says_so(tmp_path: Path) -> None:
    """The second starts, and tidies, while the first has staged a batch."""
    files = Files(str(tmp_path))
    first = CommitLog(files)
    by_first = staged_by(first, tmp_path, "e1 e2")
    second = CommitLog(files)
    second.finish()
    by_second = staged_by(second, tmp_path, "e1")
    first.commit(Position(batch=0, next_offsets={"0": 2}), *by_first)
    assert readable(tmp_path) == ["e1", "e2"]
    with pytest.raises(OtherWriter, match="another ingest committed"):
        second.commit(Position(batch=0, next_offsets={"0": 1}), *by_second)
    assert CommitLog(files).position.next_offsets == {"0": 2}
    assert readable(tmp_path) == ["e1", "e2"]
    # So late that the file of its version is gone.
    for batch in range(1, 9):
        first.commit(Position(batch=batch), *staged_by(first, tmp_path, ""))
    with pytest.raises(OtherWriter):
        second.commit(Position(batch=0), *staged_by(second, tmp_path, "e1"))
    assert CommitLog(files).position.batch == 8
    assert len(files.names("ingest/commits")) == 5


def test_a_staged_file_that_is_gone_is_no_batch(tmp_path: Path) -> None:
    log = CommitLog(Files(str(tmp_path)))
    staging, moves = staged_by(log, tmp_path, "e1")
    (tmp_path / moves[0].source).unlink()
    with pytest.raises(TableUnreadable, match="was staged and is gone"):
        log.commit(Position(batch=0), staging, moves)
    assert CommitLog(Files(str(tmp_path))).latest is None


def test_a_committed_file_that_is_gone_is_told(tmp_path: Path) -> None:
    move = Move("ingest/staging/0000000001-a/x.parquet", f"{HOUR}/x.parquet")
    made = Commit(version=1, position=Position(batch=0), moves=(move,))
    put(tmp_path, "ingest/commits/0000000001.json", made.to_json())
    killed = CommitLog(Files(str(tmp_path)))
    with pytest.raises(TableUnreadable, match="a committed file was removed"):
        killed.finish()
    put(tmp_path, "ingest/commits/0000000002.json", replace(made, version=2, moves=()).to_json())
    with pytest.raises(OtherWriter):
        killed.finish()


def test_files_may_be_deleted_once_their_commit_is_finished(tmp_path: Path) -> None:
    log = CommitLog(Files(str(tmp_path)))
    log.commit(Position(batch=0), *staged_by(log, tmp_path, "e1"))
    (file,) = (tmp_path / HOUR).iterdir()
    file.unlink()
    CommitLog(Files(str(tmp_path))).finish()
