"""What is asked of the resolver."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jgo.config import GlobalSettings

from tools.sandbox.jars import alone_with_jars


def test_only_one_at_a_time_fills_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of several nodes asks from a thread for each of them."""
    settings = GlobalSettings.load()
    settings.repo_cache = tmp_path / "not yet there"
    monkeypatch.setattr(GlobalSettings, "load", lambda: settings)
    inside, most = 0, 0

    def fill(_: int) -> None:
        nonlocal inside, most
        with alone_with_jars() as folder:
            assert folder.is_dir()
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(8)))
    assert most == 1
