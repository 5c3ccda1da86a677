"""mypyc accepts the hot modules. By night they are compiled and run; this needs no C compiler."""

import subprocess
import sys
from pathlib import Path

from tests.support.image import ROOT
from tests.support.inputs import hot_modules


def front(*files: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.support.mypyc_front", *files]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_mypyc_accepts_all_hot_modules() -> None:
    compiled = front(*hot_modules())
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr[-2000:]


def test_what_mypyc_cannot_compile_is_noticed(tmp_path: Path) -> None:
    module = tmp_path / "unpacked.py"
    module.write_text("def found(some: list[int], one: int) -> bool:\n    return one in (*some, 1)\n")
    assert front(str(module)).returncode != 0


def test_a_constant_that_mypyc_loses_is_noticed(tmp_path: Path) -> None:
    module = tmp_path / "bounds.py"
    module.write_text("from typing import Final\n\nBOUNDS_S: Final = (0.1, 0.2)\n")
    assert "bounds.BOUNDS_S" in front(str(module)).stdout
    module.write_text("from typing import Final\n\nBOUNDS_S: Final[tuple[float, ...]] = (0.1, 0.2)\n")
    assert front(str(module)).returncode == 0
