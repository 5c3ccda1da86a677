"""The second fleet: every report is there, knows nothing of the rules that judge it, and has the truth beside it."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from functools import cache

import pytest

from pidgate.findings.patterns import Pattern
from pidgate.findings.rules import PATTERNS
from tools.history import reported_clients, reports
from tools.history.events_of_day import DayTables, tables_of
from tools.history.lives import Lives, chosen, in_order
from tools.history.reported_clients import REPORTS
from tools.history.world import DAY_MS, Fleet, World

END_MS = 1_795_219_200_000  # 2026-11-21
DAYS = 10
WORLD = World(seed=5, users=24, days=DAYS, begin_ms=END_MS - DAYS * DAY_MS, scale=0.5, fleet=Fleet.REPORTS)
NUMBER = {name: number for number, name in enumerate(REPORTS)}


@cache
def day(number: int = 4) -> DayTables:
    return tables_of(WORLD, 0, number)


def lives_of(name: str) -> Lives:
    lives = reports.planned(WORLD, reports.user(WORLD, NUMBER[name]))
    begun = lives[lives.start_ms >= WORLD.begin_ms]
    return in_order(chosen(begun, slice(None)))


def test_every_pattern_is_reported_and_nothing_is_taken_from_the_rules() -> None:
    assert {one.pattern for one in REPORTS.values()} == PATTERNS - {
        Pattern.UNKNOWN,
        Pattern.PRODUCER_PER_TASK,
    }
    for module in (reports, reported_clients):
        tree = ast.parse(inspect.getsource(module))
        named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert named
        assert not [name for name in named if name.startswith("pidgate.pipeline")]


@pytest.mark.parametrize("name", REPORTS)
def test_the_first_users_have_a_report_each_and_its_label(name: str) -> None:
    user = reports.user(WORLD, NUMBER[name])
    assert [one.pattern for one in user.deployments] == [REPORTS[name].pattern]
    assert reports.patterns(WORLD, user) == {REPORTS[name].pattern}
    again = reports.planned(WORLD, user)
    assert (again == reports.planned(WORLD, user)).all()
    other = reports.user(replace(WORLD, seed=6), NUMBER[name])
    assert other.deployments != user.deployments
