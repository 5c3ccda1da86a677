"""Where the files of a checkout are, before and after the product's folders moved into `pidgate/`.

Links to folders are not followed: each file is found once, at its real place.
"""

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TOOLS = ("sandbox", "history", "bench", "deploy", "examples")
"""Before the clean-up of docs/decisions/0025 sandbox and history are in the wheel; they count as tools."""

ROOMS = ("gateway", "protocol", "quota", "events", "who", "load", "cli", "pipeline")


def real_folder(root: Path, room: str) -> Path:
    """Return the real folder of one of the product's rooms."""
    return (root / "pidgate" / room).resolve()


def python_files(*folders: Path) -> list[Path]:
    """Return the Python files below folders, without following links."""
    return sorted({file.resolve() for folder in folders for file in _walk(folder)})


def _walk(folder: Path) -> Iterator[Path]:
    for path, names, files in os.walk(folder):
        names[:] = [name for name in names if name != "__pycache__" and not name.startswith(".")]
        yield from (Path(path, name) for name in files if name.endswith(".py"))


def product_files(root: Path) -> list[Path]:
    """Return the Python files that a user installs."""
    return python_files(root / "pidgate", *(real_folder(root, room) for room in ROOMS))


def tool_files(root: Path) -> list[Path]:
    """Return the Python files of tools, without these measurements."""
    found = python_files(root / "tools", *(root / name for name in TOOLS))
    return [file for file in found if not file.is_relative_to(root / "tools" / "house")]


def test_files(root: Path) -> list[Path]:
    """Return the Python files of tests."""
    return python_files(root / "tests")
