"""The file of the held beginnings: what one worker notes, the others see at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidgate.gateway.process import held_notes

BEGINNING = (7, 0, 0, b"t", 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = held_notes.notes_path(tmp_path / "state.sock")
    held_notes.create(path)
    return path


def test_workers_see_what_one_of_them_holds(path: Path) -> None:
    one, other = held_notes.shared(path), held_notes.shared(path)
    one.note("alice", [BEGINNING], 1_000)
    assert other.has("alice", 7, 3, 1_000)
    assert held_notes.shared(path).has("alice", 7, 3, 1_000), "a worker that is started anew"


def test_it_is_made_once(path: Path) -> None:
    with pytest.raises(FileExistsError):
        held_notes.create(path)


def test_a_file_of_another_size_is_not_it(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(OSError, match="bytes"):
        held_notes.shared(path)


def test_without_the_file_a_worker_sees_what_it_holds_itself() -> None:
    own, other = held_notes.private(), held_notes.private()
    own.note("alice", [BEGINNING], 1_000)
    assert own.has("alice", 7, 3, 1_000)
    assert not other.has("alice", 7, 3, 1_000)
