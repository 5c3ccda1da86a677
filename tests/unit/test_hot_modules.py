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


def stars_in_membership(source: str) -> Iterator[str]:
    """What is unpacked in the display that `in` looks into: mypyc 2.4 fails on it, and the installation with it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            for operator, looked_into in zip(node.ops, node.comparators, strict=True):
                if isinstance(operator, ast.In | ast.NotIn) and isinstance(looked_into, ast.Tuple | ast.List):
                    yield from (ast.unparse(one) for one in looked_into.elts if isinstance(one, ast.Starred))


@pytest.mark.parametrize("module", hot_modules())
def test_nothing_is_unpacked_where_in_looks(module: str) -> None:
    assert not list(stars_in_membership((ROOT / module).read_text("utf-8")))


def test_what_is_unpacked_there_is_noticed() -> None:
    assert list(stars_in_membership("found = one not in (*some, other)")) == ["*some"]
    assert not list(stars_in_membership("found = one in some and [*some]"))


LOWERED_BY_TESTS = frozenset(
    {
        "MOST_ADMITTED_WATCHED",
        "MOST_ALIASES",
        "MOST_CUT_AT_ONCE",
        "MOST_FORWARDED_OF_ID",
        "WATCHED_IDS_PER_USER",
    }
)
"""Bounds that tests of compiled modules lower; no request that is known asks for them."""


def looked_up(source: str) -> Iterator[str]:
    """Constants that are not Final: each use of one is a look into a dict, and of one that is Final an instruction."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and not ast.unparse(node.value).startswith(("TypeVar", "ParamSpec")):
            names = [ast.unparse(target) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith("Final"):
            names = [ast.unparse(node.target)]
        else:
            continue
        yield from (name for name in names if name.isupper())


@pytest.mark.parametrize("module", hot_modules())
def test_each_constant_is_final(module: str) -> None:
    assert set(looked_up((ROOT / module).read_text("utf-8"))) <= LOWERED_BY_TESTS


def test_one_that_is_not_is_noticed() -> None:
    assert list(looked_up("A = 1\nB: int = 2\nC: Final = 3\nd = 4")) == ["A", "B"]
