"""Files that are followed by polling: somebody may be writing to one, and a link may lead elsewhere."""

import os
from pathlib import Path

from pidgate.gateway.config.file_watch import FileWatch


def test_a_file_counts_as_changed_when_two_looks_are_alike(tmp_path: Path) -> None:
    file = tmp_path / "pidgate.yaml"
    file.write_text("a")
    watch = FileWatch(file)
    watch.mark()
    assert not watch.has_changed()

    file.write_text("ab")
    assert not watch.has_changed(), "somebody may be writing to it"
    file.write_text("abc")
    assert not watch.has_changed()
    assert watch.has_changed()
    assert watch.has_changed(), "until it is taken"
    watch.mark()
    assert not watch.has_changed()
    file.unlink()
    assert [watch.has_changed() for _ in range(3)] == [False, True, True]


def test_a_link_that_is_swapped_is_a_change(tmp_path: Path) -> None:
    """Kubernetes: pidgate.yaml -> ..data/pidgate.yaml, and ..data -> the newest directory."""
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "pidgate.yaml").write_text("same size")
        os.utime(tmp_path / version / "pidgate.yaml", ns=(1, 1))
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "pidgate.yaml").symlink_to("..data/pidgate.yaml")
    watch = FileWatch(tmp_path / "pidgate.yaml")
    watch.mark()
    (tmp_path / "..tmp").symlink_to("v2")
    os.replace(tmp_path / "..tmp", tmp_path / "..data")

    assert [watch.has_changed() for _ in range(2)] == [False, True]
