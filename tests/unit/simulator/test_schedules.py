"""Random schedules of everything together. One seed is one story."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from pidgate.quota.sticky import StickyRefusals
from tests.simulator.drawing import drawn
from tests.simulator.mutants import EQUIVALENT, MUTANTS, NOT_HARMFUL_HERE, NOT_HERE
from tests.simulator.playing import play
from tests.simulator.schedule import Shape
from tests.simulator.searching import failing, report
from tests.simulator.story import setting
from tests.support.hash_seeds import printed_by_each

ROOT = Path(__file__).parents[3]
BY_DAY = 2_000
BY_NIGHT = 100_000
PARTS = 10
SOON = 60
"""Seeds of a theme: a rule that guards against loss is aimed at, or a breach of it is found by luck."""


def _nothing_fails(seeds: range) -> None:
    found = failing(seeds)
    assert found is None, report(found)


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_doubled_or_let_through(part: int) -> None:
    each = BY_DAY // PARTS
    _nothing_fails(range(1 + part * each, 1 + (part + 1) * each))


@pytest.mark.nightly
@pytest.mark.timeout(6 * 3_600)
@pytest.mark.parametrize("part", range(PARTS))
def test_by_night(part: int) -> None:
    each = BY_NIGHT // PARTS
    _nothing_fails(range(BY_DAY + 1 + part * each, BY_DAY + 1 + (part + 1) * each))


def test_a_seed_has_one_story_whatever_hashes_are() -> None:
    code = (
        "from tests.simulator.searching import report\n"
        "from tests.simulator.themes import Theme, aimed\n"
        "print(*(report(aimed(3, theme), shrinks=False) for theme in Theme))\n"
    )
    (story,) = printed_by_each(code)
    assert "hands on" in story


def test_every_part_of_a_schedule_is_one() -> None:
    schedule = drawn(17, Shape.ONE)
    assert setting(schedule).count("\n") == len(schedule.steps)
    assert play(schedule).violation == ""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    assert play(mutant.schedule).violation == ""
    mutant.breaks(monkeypatch)
    assert play(mutant.schedule).violation


def test_every_invariant_has_a_mutant_or_a_reason() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    invariants = page.partition("## Invariants")[2].partition("\n## ")[0]
    stated = {name.rstrip(".") for name in re.findall(r"^- \*\*(.+?)\*\*", invariants, re.MULTILINE)}
    assert {mutant.rule for mutant in MUTANTS.values()} | set(NOT_HERE) == stated
    assert not {mutant.rule for mutant in MUTANTS.values()} & set(NOT_HERE)


class _Recorder:
    """In place of a monkeypatch: what a mutant would break."""

    def __init__(self) -> None:
        self.broken: set[tuple[Any, str]] = set()

    def setattr(self, owner: Any, name: str, _by: Any) -> None:
        self.broken.add((owner, name))


def test_every_rule_of_the_table_of_refusals_has_a_mutant() -> None:
    source = inspect.getsource(StickyRefusals)
    rules = re.findall(r"def (\w+)", source.partition("# The rules")[2].partition("# Looking")[0])
    recorder = _Recorder()
    for mutant in MUTANTS.values():
        mutant.breaks(recorder)  # type: ignore[arg-type]
    assert rules
    assert {rule for rule in rules if (StickyRefusals, rule) not in recorder.broken} == set(EQUIVALENT)


@pytest.mark.parametrize("name", NOT_HARMFUL_HERE)
def test_what_no_schedule_notices_a_unit_test_does(name: str) -> None:
    _, test = NOT_HARMFUL_HERE[name]
    module, _, function = test.partition("::")
    assert f"def {function}(" in (ROOT / module).read_text()
    assert name not in MUTANTS


def test_no_breach_is_found_by_luck() -> None:
    assert max(mutant.seed for mutant in MUTANTS.values()) <= SOON
