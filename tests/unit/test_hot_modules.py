"""What mypyc compiles to something else than Python runs is not in the modules that it compiles."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.image import ROOT
from tests.support.inputs import hot_modules

PURE = ("len", "min", "max")


def calls_in_bounds(source: str) -> Iterator[str]:
    """The bounds of slices that call something: mypyc 2.4 works each of them out twice, unless a list is cut."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Slice):
            for bound in filter(None, (node.lower, node.upper)):
                for part in ast.walk(bound):
                    if isinstance(part, ast.Call) and ast.unparse(part.func) not in PURE:
                        yield ast.unparse(bound)


@pytest.mark.parametrize("module", hot_modules())
def test_no_bound_of_a_slice_calls_what_may_not_be_called_twice(module: str) -> None:
    assert not list(calls_in_bounds((ROOT / module).read_text("utf-8")))


def test_such_a_call_is_noticed() -> None:
    assert list(calls_in_bounds("rest = data[self.taken(data) :]")) == ["self.taken(data)"]
    assert not list(calls_in_bounds("rest = data[len(first) : min(a, b)]"))
