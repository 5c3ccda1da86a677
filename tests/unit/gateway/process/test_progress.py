"""The state owner's counter: one that moves is busy at most, one that stands still for a second is gone."""

from __future__ import annotations

from pathlib import Path

from pidgate.gateway.process.progress import GONE_S, Progress, ProgressWatch, progress_path


def test_it_moves_or_it_is_gone(tmp_path: Path) -> None:
    path = progress_path(tmp_path / "socket")
    progress, watch = Progress(path), ProgressWatch(path)
    watch.moved(10.0)
    assert not watch.stands_still(10.5)
    progress.advance()
    assert not watch.stands_still(10.5 + GONE_S)
    assert not watch.stands_still(10.4 + 2 * GONE_S)
    assert watch.stands_still(10.5 + 2 * GONE_S)
    Progress(path).advance()  # a successor
    assert not watch.stands_still(20.0)


def test_without_a_counter_what_is_received_is_the_sign_of_life(tmp_path: Path) -> None:
    watch = ProgressWatch(tmp_path / "none")
    watch.moved(10.0)
    assert not watch.stands_still(10.0 + GONE_S / 2)
    assert watch.stands_still(10.0 + GONE_S)
    watch.moved(12.0)
    assert not watch.stands_still(12.5)
