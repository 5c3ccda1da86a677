"""Every rule of the documents is held: by a schedule that notices its breach, a mutant of a test, or a named test."""

from __future__ import annotations

import ast
from functools import cache
from typing import Final

import pytest

from tests.simulator.mutants import MUTANTS
from tests.unit.rules.breaking import failed_in, run
from tests.unit.rules.held import HELD_BY, REASONS
from tests.unit.rules.held_limits import LIMITS_HELD_BY
from tests.unit.rules.proxy_mutants import PROXY_MUTANTS
from tests.unit.rules.quota_mutants import QUOTA_MUTANTS
from tests.unit.rules.stated import PAGES, ROOT, bullets, rules, rules_in, section_of

UNIT_MUTANTS: Final = {**QUOTA_MUTANTS, **PROXY_MUTANTS}
NAMED_TESTS: Final = {**HELD_BY, **LIMITS_HELD_BY}


def test_every_rule_of_the_documents_is_held_and_nothing_else_is() -> None:
    broken = {mutant.rule for mutant in MUTANTS.values()} | {mutant.rule for mutant in UNIT_MUTANTS.values()}
    stated = rules()
    assert len(stated) == len(set(stated)), "two rules of one name"
    assert sorted({*broken, *NAMED_TESTS, *REASONS}) == sorted(stated)
    assert not REASONS.keys() & ({*broken, *NAMED_TESTS})


@pytest.mark.parametrize(("page", "title"), [(page, title) for page in PAGES for title in PAGES[page]])
def test_every_bullet_names_a_rule(page: str, title: str) -> None:
    lines = bullets(section_of(page, title))
    assert lines
    assert [line for line in lines if not list(rules_in(title, line))] == []


def test_a_rule_is_read_under_its_paragraph() -> None:
    text = "- **Order.** Answers *in turn*, **not** *out of it.*\n- *Alone*: one.\nno *bullet*\n"
    assert list(rules_in("Title", text)) == ["Order: in turn", "Order: out of it", "Title: Alone"]


@cache
def _functions_of(path: str) -> tuple[frozenset[str], str]:
    source = (ROOT / path).read_text("utf-8")
    tree = ast.parse(source)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), source


@pytest.mark.parametrize("rule", NAMED_TESTS)
def test_the_tests_that_hold_a_rule_are_there(rule: str) -> None:
    assert NAMED_TESTS[rule]
    for test in NAMED_TESTS[rule]:
        path, _, function = test.partition("::")
        name, _, case = function.rstrip("]").partition("[")
        functions, source = _functions_of(path)
        assert name in functions, test
        assert case in source, test


@pytest.mark.parametrize("name", UNIT_MUTANTS)
def test_a_broken_rule_is_noticed(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = UNIT_MUTANTS[name]
    with monkeypatch.context() as patch:
        mutant.breaks(patch)
        with pytest.raises(mutant.fails) as noticed:
            run(mutant.test, mutant.given, request.getfixturevalue)
    assert mutant.at in failed_in(noticed.value, mutant.test)
