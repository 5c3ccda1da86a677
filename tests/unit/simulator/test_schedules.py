"""Random schedules of everything together. One seed is one story."""

import inspect
import re
from typing import Any

import pytest

from pidgate.quota.sticky import StickyRefusals
from tests.simulator import __main__ as command
from tests.simulator.__main__ import main
from tests.simulator.drawing import drawn
from tests.simulator.playing import play
from tests.simulator.schedule import Shape
from tests.simulator.searching import failing, report
from tests.simulator.story import setting
from tests.support.hash_seeds import printed_by_each
from tests.support.mutants import BY_SCHEDULE, CONTROLS, EQUIVALENT
from tests.support.native_core import built
from tests.support.rules import rule

BY_DAY = 1_000
BY_NIGHT = 100_000
PARTS = 10
SOON = 60
"""Seeds of a theme: a rule that guards against loss is aimed at, or a breach of it is found by luck."""


def _nothing_fails(seeds: range) -> None:
    found = failing(seeds)
    assert found is None, report(found)


@rule("No acknowledged record is lost, doubled or reordered.", "order")
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


@pytest.mark.parametrize("name", BY_SCHEDULE | CONTROLS)
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = (BY_SCHEDULE | CONTROLS)[name]
    if mutant.schedule.setup.lend_after is not None and built() is None:
        pytest.skip("there is no C compiler: the simulator has no lanes")
    assert play(mutant.schedule).violation == ""
    mutant.breaks(monkeypatch)
    assert mutant.breach in play(mutant.schedule).violation


STEP = re.compile(r"^ +\d+ ms  ", re.MULTILINE)


def _is_short_and_says_where_it_broke(told: str, drawn_steps: int) -> None:
    """The story of a schedule in which the refusal of batch 0 is lifted for batch 1."""
    assert len(STEP.findall(told)) < drawn_steps
    broke = re.search(
        r"\nbatch 1 of java-1 to partition 1 passed gateway-1 at (\S+), before number 0, which gateway-1 kept back at "
        r"(\S+)$",
        told,
    )
    assert broke
    story: dict[str, list[str]] = {}
    for line in told.splitlines():
        at_s, _, text = line.strip().partition("  ")
        story.setdefault(at_s, []).append(text.strip())
    passed, kept_back = (story[at_s] for at_s in broke.groups())
    assert any(text.startswith("gateway-1 hands on java-1 1:0/1 to broker-") for text in passed)
    assert "gateway-1 is given java-1 1:0/0" in kept_back


def test_a_schedule_that_fails_is_told_at_its_shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = BY_SCHEDULE["cache before sticky"].schedule
    BY_SCHEDULE["cache before sticky"].breaks(monkeypatch)
    _is_short_and_says_where_it_broke(report(schedule), len(schedule.steps))
    whole = report(schedule, shrinks=False)
    assert len(STEP.findall(whole)) == len(schedule.steps)


def test_so_is_a_seed_that_somebody_asks_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--seed", "5"]) == 0
    assert capsys.readouterr().out.endswith("nothing was wrong\n")
    schedule = BY_SCHEDULE["cache before sticky"].schedule
    BY_SCHEDULE["cache before sticky"].breaks(monkeypatch)
    monkeypatch.setattr(command, "aimed", lambda _seed: schedule)
    assert main(["--seed", "11"]) == 1
    _is_short_and_says_where_it_broke(capsys.readouterr().out.rstrip(), len(schedule.steps))


class _Recorder:
    """In place of a monkeypatch: what a mutant would break."""

    def __init__(self) -> None:
        self.broken: set[tuple[Any, str]] = set()

    def setattr(self, owner: Any, name: str, _by: Any) -> None:
        self.broken.add((owner, name))


def test_every_rule_of_the_table_of_refusals_has_a_mutant() -> None:
    source = inspect.getsource(StickyRefusals)
    rules = re.findall(r"def (\w+)", source.partition("# The rules")[2].partition("# Lookups")[0])
    recorder = _Recorder()
    for mutant in BY_SCHEDULE.values():
        mutant.breaks(recorder)  # type: ignore[arg-type]
    assert rules
    assert {rule for rule in rules if (StickyRefusals, rule) not in recorder.broken} == set(EQUIVALENT)


def test_no_breach_is_found_by_luck() -> None:
    assert max(mutant.seed for mutant in BY_SCHEDULE.values()) <= SOON
