"""Modules with one expression broken."""

from types import ModuleType
from typing import Any

from tests.support.inputs import ROOT


def mutant(path: str, good: str, bad: str) -> Any:
    """Return the module with one expression replaced."""
    source = (ROOT / path).read_text("utf-8")
    assert source.count(good) >= 1
    module = ModuleType("mutant")
    exec(compile(source.replace(good, bad), path, "exec"), module.__dict__)
    return module
