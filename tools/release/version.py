"""The version: pyproject.toml has it, and nothing else does."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def released_version() -> str:
    """Return the version of this checkout, for example "0.1.0"."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return version
