"""The first hour where nothing is installed yet: the tutorial word by word, beside the wheel of a release."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from tests.install.test_wheel import copy_of_the_repository, run
from tests.support.first_hour import play_tutorial
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

pytestmark = [pytest.mark.install, pytest.mark.kafka, pytest.mark.timeout(3600)]


def test_tutorial_word_by_word_in_a_fresh_environment(tmp_path: Path) -> None:
    directory = tmp_path / "here"
    directory.mkdir()
    source = copy_of_the_repository(tmp_path / "source")
    wheel = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir")
    run(*wheel, directory, source, cwd=tmp_path, environment={"PIDGATE_PURE": "1"})
    venv.create(tmp_path / "environment", with_pip=True)
    commands = tmp_path / "environment" / "bin"
    with Cluster(ClusterSpec(sasl=True)) as cluster:
        for has_login in (False, True):
            (directory / "pidgate.yaml").unlink(missing_ok=True)
            play_tutorial(cluster, directory, has_login=has_login, commands=commands)
    assert (commands / "pidgate").exists()
