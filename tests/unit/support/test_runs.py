"""A run of tests ends, and says what failed, also where pytest by itself would not."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.inputs import ROOT


def run_of(tests: str, folder: Path, *arguments: str) -> str:
    """Run the tests as CI does; what was printed. Raises TimeoutExpired where it does not end within a minute."""
    module = folder / "test_them.py"
    module.write_text(tests)
    # What fails here is not the project's last failure: nothing is kept for --last-failed.
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "pyproject.toml",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
    ]
    return subprocess.run(
        [*pytest, str(module), *arguments],
        cwd=ROOT,
        env={**os.environ, "CI": "true"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout


def test_a_comparison_of_megabytes_fails_at_once(tmp_path: Path) -> None:
    tests = """
import random

def test_it():
    assert bytearray(random.Random(1).randbytes(2_000_000)) == random.Random(2).randbytes(2_000_000)
"""
    assert "1 failed" in run_of(tests, tmp_path)


def test_a_process_that_ends_in_a_test_ends_the_run(tmp_path: Path) -> None:
    tests = """
import os
import pytest

@pytest.mark.parametrize("number", range(20))
def test_it(number):
    if number == 7:
        os._exit(1)
"""
    printed = run_of(tests, tmp_path, "-n2", "--dist=loadgroup", "--no-loadscope-reorder")
    assert "crashed while running" in printed
    assert "test_it[7]" in printed
