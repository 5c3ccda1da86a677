"""docs/reference/rules.md is what the marks say, and each promise of the README has rules."""

from __future__ import annotations

from tests.support.rules_page import PAGE, PROMISES, TITLES, marks, page, promises


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
