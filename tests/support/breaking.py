"""A rule broken on purpose, and the schedule or the test that has to notice: the parts of tests/support/mutants.py."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import pytest

from tests.simulator.every import BESIDE_EACH, Act, SmallWorld
from tests.simulator.schedule import Schedule
from tests.simulator.themes import Theme, aimed
from tests.support.inputs import ROOT

Break = Callable[[pytest.MonkeyPatch], None]
FAILED: Final = (AssertionError, pytest.fail.Exception)


class Breach(StrEnum):
    """Words of the violation that a schedule finds. A mutant with another violation has crashed: it is not noticed."""

    OVERTAKEN = "kept back at"
    """A gateway forwarded a batch before an earlier one that it had refused or held."""
    OUT_OF_TURN = "before that of request"
    """A client received responses in another order than that of its requests."""
    QUOTA = "new producer ids from"
    ADDRESS = "the address of a broker reached a client"
    MISCOUNTED = "has miscounted its memory"
    EARLY = "refused before its state was whole"
    BYTES = "bytes through gateway-1 from"
    SESSION = "fetch sessions of another epoch"
    GROUP = "rebalanced: generation"
    TOLD = "was told a throttle of"
    CLOSED = "closed a client: quota"
    DUE = "was closed with answers due"
    RELIEF = "after byte rates were lifted"
    UNASKED = "which is not the next request in flight"
    GARBLED = "MalformedFrame"
    """A client was sent what is no answer."""
    UNREAD = "readers have"
    PROTOCOL = "closed a client: protocol"
    UPSTREAM = "closed a client: upstream"
    STATES = "producer states to be paid"
    KNOWN = "refused the known id"
    FUSED = "below its quota"
    LET_GO = "the fuse let go of"
    COUNTED = "bytes to clients, and wrote"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A broken rule that a schedule of the simulator notices. `seed` is the first of its theme that does.

    Without a theme, `acts` in the small world `small` (every.py) notice it.
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
        """The schedule that notices it."""
        return self.small.schedule(self.acts) if self.theme is None else aimed(self.seed, self.theme)


@dataclass(frozen=True, slots=True)
class Tested:
    """A broken rule that no schedule can show, and a test that fails then.

    `test` is "path::function", called with `given` and its fixtures. `at` holds words of the line at which it fails,
    so that a crash elsewhere does not count.
    """

    rule: str
    breaks: Break
    test: str
    at: str
    given: dict[str, object] = field(default_factory=dict)


def replaced(owner: Any, name: str, by: Any) -> Break:
    """Put something else in the place of an attribute."""
    return lambda patch: patch.setattr(owner, name, by)


def around(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> Break:
    """Replace a method or function by one that is made of the one before."""
    return lambda patch: patch.setattr(owner, name, make(getattr(owner, name)))


def mutated(path: str, good: str, bad: str) -> Any:
    """Return the module at `path` with one expression replaced."""
    source = (ROOT / path).read_text("utf-8")
    assert good in source
    module = ModuleType("mutated")
    exec(compile(source.replace(good, bad), path, "exec"), module.__dict__)
    return module


def rewritten(path: str, good: str, bad: str) -> Break:
    """Give each function and method of a module the code that it has with one expression replaced."""

    def breaks(patch: pytest.MonkeyPatch) -> None:
        new, old = mutated(path, good, bad), import_module(path.removesuffix(".py").replace("/", "."))
        for scope, of in [(vars(new), vars(old))] + [
            (vars(made), vars(getattr(old, name)))
            for name, made in vars(new).items()
            if inspect.isclass(made) and made.__module__ == new.__name__
        ]:
            for name, made in scope.items():
                if inspect.isfunction(made) and made.__module__ == new.__name__ and name in of:
                    patch.setattr(of[name], "__code__", made.__code__)

    return breaks


def nothing(*_: object, **__: object) -> None: ...


async def nothing_later(*_: object) -> None: ...


def never(*_: object, **__: object) -> bool:
    return False


def always(*_: object, **__: object) -> bool:
    return True


def run(test: str, given: dict[str, object], fixture: Callable[[str], Any]) -> None:
    """Call a test as pytest does. `fixture` returns the fixtures that are not defined in its module."""
    path, _, function = test.partition("::")
    module = import_module(path.removesuffix(".py").replace("/", "."))
    with ExitStack() as stack:
        stack.enter_context(_loops_closed())

        values = dict(given)

        def value_of(name: str) -> Any:
            if name not in values:
                values[name] = made_by(getattr(module, name)) if hasattr(module, name) else fixture(name)
            return values[name]

        def made_by(fixture_of_module: Any) -> Any:
            made = inspect.unwrap(fixture_of_module)
            value = made(**{needed: value_of(needed) for needed in inspect.signature(made).parameters})
            return stack.enter_context(_ending(value)) if inspect.isgenerator(value) else value

        called = getattr(module, function)
        called(**{name: value_of(name) for name in inspect.signature(called).parameters})


@contextmanager
def _loops_closed() -> Iterator[None]:
    """Close the event loops that a test leaves open when it fails."""
    made: list[asyncio.AbstractEventLoop] = []
    new_event_loop = asyncio.new_event_loop

    def new() -> asyncio.AbstractEventLoop:
        made.append(new_event_loop())
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "new_event_loop", new)
        try:
            yield
        finally:
            for loop in made:
                loop.close()


@contextmanager
def _ending(made: Iterator[Any]) -> Iterator[Any]:
    """Yield the value of a fixture; let the fixture clean up at the end."""
    try:
        yield next(made)
    finally:
        next(made, None)


def failed_in(error: BaseException, test: str) -> str:
    """Return the line of the test's module at which it failed, or "" if it failed elsewhere."""
    path = test.partition("::")[0]
    lines = [
        frame.line or ""
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.endswith(path)
    ]
    return lines[-1] if lines else ""
