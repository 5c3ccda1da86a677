"""A rule of the documents, broken in one way, and the schedule that notices it: what a mutant is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

from tests.simulator.every import BESIDE_EACH, Act, SmallWorld
from tests.simulator.schedule import Schedule
from tests.simulator.themes import Theme, aimed

Break = Callable[[pytest.MonkeyPatch], None]


class Breach(StrEnum):
    """What a schedule finds wrong, by words that its violation has. A mutant that does something else is not noticed:
    it has crashed.
    """

    OVERTAKEN = "kept back at"
    """A gateway let a batch pass before an earlier one that it had kept back."""
    OUT_OF_TURN = "before that of request"
    """A client got answers in another order than that of its requests."""
    QUOTA = "new producer ids from"
    CLOSED_AGAIN = "for what it had closed it for before"
    ADDRESS = "the address of a broker reached a client"
    NOT_GIVEN_BACK = "bytes for clients that are gone"
    MISCOUNTED = "has miscounted its memory"
    EARLY = "refused before its state was whole"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule, broken. `rule`: "paragraph: name" of the documents. `seed`: the first of its theme that notices.

    No theme: what happens in a small world (every.py) that notices it.
    """

    rule: str
    breaks: Break
    breach: Breach
    theme: Theme | None = None
    seed: int = 0
    acts: tuple[Act, ...] = ()
    small: SmallWorld = BESIDE_EACH

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that notices it."""
        return self.small.schedule(self.acts) if self.theme is None else aimed(self.seed, self.theme)


def replaced(owner: Any, name: str, by: Callable[..., Any]) -> Break:
    """Put something else in the place of a method or function."""
    return lambda patch: patch.setattr(owner, name, by)


def around(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> Break:
    """Replace a method or function by one that is made of what was there."""
    return lambda patch: patch.setattr(owner, name, make(getattr(owner, name)))


def nothing(*_: object, **__: object) -> None:
    """Left undone."""


async def nothing_later(*_: object) -> None:
    """Left undone."""


def never(*_: object, **__: object) -> bool:
    return False


def always(*_: object, **__: object) -> bool:
    return True
