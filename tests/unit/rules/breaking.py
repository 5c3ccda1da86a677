"""A rule that no schedule of the simulator can see broken: broken for one existing test, which has to fail."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

import pytest

from tests.simulator.breaking import Break

FAILED: Final = (AssertionError, pytest.fail.Exception)


@dataclass(frozen=True, slots=True)
class UnitMutant:
    """One rule, broken. `rule`: "paragraph: name". `test`: "path::function", called with `given` and its fixtures.

    `at`: words of the line at which the test fails: it notices this breach, and nothing beside it. `fails`: by what;
    an assertion, unless the broken rule is one of errors.
    """

    rule: str
    breaks: Break
    test: str
    at: str
    given: dict[str, object] = field(default_factory=dict)
    fails: type[BaseException] | tuple[type[BaseException], ...] = FAILED


def run(test: str, given: dict[str, object], fixture: Callable[[str], Any]) -> None:
    """Call a test as pytest does. Raises what it raises. `fixture` returns those that are not its module's own."""
    path, _, function = test.partition("::")
    module = import_module(path.removesuffix(".py").replace("/", "."))
    with ExitStack() as stack:
        stack.enter_context(_loops_closed())

        def value_of(name: str) -> Any:
            if name in given:
                return given[name]
            if not hasattr(module, name):
                return fixture(name)
            made = inspect.unwrap(getattr(module, name))
            value = made(**{needed: value_of(needed) for needed in inspect.signature(made).parameters})
            return stack.enter_context(_ending(value)) if inspect.isgenerator(value) else value

        called = getattr(module, function)
        called(**{name: value_of(name) for name in inspect.signature(called).parameters})


@contextmanager
def _loops_closed() -> Iterator[None]:
    """Close the loops that a test which fails in its middle leaves open."""
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
    """Hold what a fixture yields; have it clean up at the end."""
    try:
        yield next(made)
    finally:
        next(made, None)


def failed_in(error: BaseException, test: str) -> str:
    """Return the line of the test's module at which it failed; "": it failed elsewhere."""
    path = test.partition("::")[0]
    lines = [
        frame.line or ""
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.endswith(path)
    ]
    return lines[-1] if lines else ""
