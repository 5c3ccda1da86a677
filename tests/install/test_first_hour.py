"""The first hour where nothing is installed yet: the tutorial word by word, beside the wheel of a release."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.install.test_wheel import copy_of_the_repository
from tests.support.first_hour import play_tutorial
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

pytestmark = [pytest.mark.install, pytest.mark.kafka, pytest.mark.timeout(3600)]


def test_tutorial_word_by_word_in_a_fresh_environment(tmp_path: Path) -> None:
    directory = tmp_path / "here"
    directory.mkdir()
    source = copy_of_the_repository(tmp_path / "source")
    made = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(directory),
        str(source),
    ]
    subprocess.run(made, check=True, env={**os.environ, "PIDGATE_PURE": "1"})
    venv.create(tmp_path / "environment", with_pip=True)
    commands = tmp_path / "environment" / "bin"
    with Cluster(ClusterSpec(sasl=True)) as cluster:
        for has_login in (False, True):
            (directory / "pidgate.yaml").unlink(missing_ok=True)
            play_tutorial(cluster, directory, has_login=has_login, commands=commands)
    assert (commands / "pidgate").exists()
