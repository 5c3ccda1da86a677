"""Following a journal while it grows."""

from pathlib import Path

from tools.sandbox.demo.cast import Tail


def test_a_file_that_is_not_there_yet_has_nothing_new(tmp_path: Path) -> None:
    assert list(Tail(tmp_path / "later").new()) == []


def test_each_line_is_told_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    tail = Tail(path)
    with path.open("w", buffering=1) as journal:
        journal.write('{"n": 1}\n{"n"')
        journal.flush()
        first = list(tail.new())
        journal.write(": 2}\n")
        second = list(tail.new())

    assert first == [{"n": 1}]
    assert second == [{"n": 2}]
    assert list(tail.new()) == []
