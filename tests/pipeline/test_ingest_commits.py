"""Killed at any step of a commit, and started again: all of it is there once, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pidgate.pipeline.errors import TableUnreadable
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest.commits import Commit, CommitLog, Position
from pidgate.pipeline.ingest.seqs import Loss
from tests.pipeline.mortal import Killed, Mortal, files_on, put


def readable(root: Path) -> list[str]:
    """What a reader of the tables finds: the events in all files."""
    found = (path for table in ("events", "gaps") for path in (root / table).rglob("*.parquet"))
    return sorted(word for path in found for word in path.read_text().split())


Work = Callable[[Files, Path], None]
HOUR = "events/decision/day=2026-11-21/hour=07"


def take_batch(files: Files, root: Path) -> None:
    """Two files of one batch."""
    log = CommitLog(files)
    log.finish()
    if log.position.batch == 1:
        return
    staging, state = log.staging(), log.new_state()
    put(root, f"{staging}/{HOUR}/a.parquet", "e3 e4")
    put(root, f"{staging}/gaps/b.parquet", "e5")
    put(root, f"{state}/part.parquet", "seen")
    targets = (f"{HOUR}/batch-{log.next_version}.parquet", f"gaps/batch-{log.next_version}.parquet")
    moves = tuple(zip((f"{staging}/{HOUR}/a.parquet", f"{staging}/gaps/b.parquet"), targets, strict=True))
    log.commit(Position(batch=1, state=state), moves=moves)


def compact(files: Files, root: Path) -> None:
    """The hour's two files become one."""
    log = CommitLog(files)
    log.finish()
    before = list(files.data_files(HOUR))
    if len(before) == 1:
        return
    staging = log.staging()
    put(root, f"{staging}/one.parquet", "e1 e2 e3 e4")
    log.commit(
        log.position, moves=log.moves(files.data_files(staging), staging, "compacted", HOUR), removes=before
    )


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
    take_batch(files, tmp_path)
    assert len(readable(tmp_path)) > len(set(readable(tmp_path)))


def test_a_commit_comes_back_as_it_was(tmp_path: Path) -> None:
    loss = Loss(kafka_partition=2, first_offset=5, last_offset=8, resumed_ms=77, topic_id="t")
    position = Position(batch=3, topic_id="t", next_offsets={0: 5, 11: 7}, topic_ms=9, losses=(loss,))
    made = Commit(version=4, position=position, moves=(("a", "b"),), removes=("c", "d"))
    assert Commit.from_json(made.to_json()) == made
    assert loss.missing == 4


def test_a_commit_that_is_none_is_named(tmp_path: Path) -> None:
    put(tmp_path, "ingest/commits/0000000003.json", "{}")
    with pytest.raises(TableUnreadable, match=r"0000000003\.json was not written by ingest"):
        CommitLog(Files(str(tmp_path)))


def test_only_the_latest_state_is_kept(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    log = CommitLog(files)
    for batch in range(8):
        state = log.new_state()
        put(tmp_path, f"{state}/part.parquet", "seen")
        log.commit(Position(batch=batch, state=state))
    assert files.names("ingest/state") == [state.rpartition("/")[2]]
    assert len(files.names("ingest/commits")) == 5
    assert CommitLog(files).position.batch == 7
