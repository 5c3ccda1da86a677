"""`@rule`: the rules that tests hold. docs/reference/rules.md lists them (rules_page.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

Theme = Literal[
    "order", "identity", "protocol", "mutes", "cost", "failures", "fleet", "memory", "connections"
]

_Test = TypeVar("_Test", bound=Callable[..., Any])


def rule(sentence: str, theme: Theme) -> Callable[[_Test], _Test]:
    """Mark a test as one that fails if the rule is broken. Mark the best one or two tests of a rule."""
    return lambda test: test
