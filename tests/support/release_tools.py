"""Tools that build and check what a release publishes, kept out of the environment of the tests.

`make release-tools` installs them into .venv/release: packages of requirements/release.lock, and helm and actionlint
where there is a Go. A test that needs a missing one is skipped, and the summary names it.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.image import ROOT

FOLDER = Path(os.environ.get("PIDGATE_RELEASE_TOOLS", ROOT / ".venv" / "release"))


def tool(name: str) -> str:
    """Return the path of a tool; skip the test where there is none."""
    found = shutil.which(name, path=f"{FOLDER / 'bin'}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"DID NOT RUN: there is no {name}; `make release-tools` or the system's packages have it")
    return found


def passes(*command: str | Path, cwd: Path = ROOT, given: str | None = None) -> str:
    """Run the command, which has to succeed, and return what it printed."""
    done = subprocess.run(command, cwd=cwd, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{[str(word) for word in command]}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def fails(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run the command, which has to fail, and return what it printed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def without(text: str, lines: Sequence[str]) -> list[str]:
    """Return the lines of the text that do not begin with one of these words."""
    return [line for line in text.splitlines() if not line.startswith(tuple(lines))]
