"""Random schedules of everything together. One seed is one story."""

import re
from pathlib import Path

import pytest

from tests.simulator.drawing import drawn, restless
from tests.simulator.mutants import MUTANTS, NOT_HERE
from tests.simulator.playing import play
from tests.simulator.schedule import Shape
from tests.simulator.searching import failing, report
from tests.simulator.story import setting
from tests.support.hash_seeds import printed_by_each

ROOT = Path(__file__).parents[3]
BY_DAY = 400
BY_NIGHT = 20_000
PARTS = 4


def _nothing_fails(seeds: range) -> None:
    found = failing(seeds)
    assert found is None, report(found)


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_doubled_or_let_through(part: int) -> None:
    each = BY_DAY // PARTS
    _nothing_fails(range(1 + part * each, 1 + (part + 1) * each))


@pytest.mark.nightly
@pytest.mark.timeout(6 * 3_600)
@pytest.mark.parametrize("part", range(2))
def test_by_night(part: int) -> None:
    each = BY_NIGHT // 2
    _nothing_fails(range(BY_DAY + 1 + part * each, BY_DAY + 1 + (part + 1) * each))


def test_a_seed_has_one_story_whatever_hashes_are() -> None:
    code = (
        "from tests.simulator.drawing import drawn\n"
        "from tests.simulator.searching import report\n"
        "print(*(report(drawn(seed), shrinks=False) for seed in (3, 5, 11)))\n"
    )
    (story,) = printed_by_each(code)
    assert "hands on" in story


def test_every_part_of_a_schedule_is_one() -> None:
    schedule = drawn(17, Shape.ONE)
    assert setting(schedule).count("\n") == len(schedule.steps)
    assert play(schedule).violation == ""


@pytest.mark.parametrize("seed", range(1, 41))
def test_leaders_that_do_not_rest(seed: int) -> None:
    schedule = restless(seed)
    assert play(schedule).violation == "", report(schedule)


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
