"""docs/rules.md is what the marks say, each promise of the README has rules, and broken rules are noticed."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.rules_page import PAGE, PROMISES, TITLES, marks, page, promises
from tests.unit.rules.breaking import failed_in, run
from tests.unit.rules.proxy_mutants import PROXY_MUTANTS
from tests.unit.rules.quota_mutants import QUOTA_MUTANTS

UNIT_MUTANTS: Final = {**QUOTA_MUTANTS, **PROXY_MUTANTS}


def test_the_page_is_made_of_the_marks() -> None:
    assert PAGE.read_text("utf-8") == page(), "`make docs` writes it"


def test_a_rule_is_one_sentence_of_one_theme() -> None:
    themes = {(mark.sentence, mark.theme) for mark in marks()}
    assert len({sentence for sentence, _ in themes}) == len(themes)
    assert {theme for _, theme in themes} == set(TITLES)


def test_every_promise_of_the_readme_has_rules() -> None:
    bullets = promises()
    assert [[start for start in PROMISES if bullet.startswith(start)] for bullet in bullets] == [
        [start] for start in PROMISES
    ]
    assert {sentence for rules in PROMISES.values() for sentence in rules} <= {
        mark.sentence for mark in marks()
    }


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
