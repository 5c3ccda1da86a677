"""The second fleet: every report is there, knows nothing of the rules that judge it, and has the truth beside it."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from pidgate.findings.patterns import HARMFUL, Pattern
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


def test_a_days_events_have_the_truth_beside_them() -> None:
    tables, ids = day().tables, day().ids.to_pandas()
    new = tables["decision"].to_pandas().query("reason != 'refresh'")
    assert set(new.producer_id) == set(ids.producer_id)
    assert not ids.duplicated("producer_id").any()
    harmful = {pattern.value for pattern in HARMFUL}
    assert set(ids[~ids.healthy].pattern) <= harmful
    assert len(ids) > 1_000


def test_what_fails_is_used_to_its_end() -> None:
    """An error is the answer to a request: the id's last use is no earlier."""
    in_trouble = int((lives_of("replaced_threads").start_ms[0] - WORLD.begin_ms) // DAY_MS)
    errors = day(in_trouble).tables["produce_error"].to_pandas()
    usage = day(in_trouble).tables["id_usage"].to_pandas()
    users = {reports.user(WORLD, NUMBER["replaced_threads"]).name}
    failed = errors[errors.user.isin(users)].groupby("producer_id").wall_time_ms.max()
    last = usage[usage.user.isin(users)].groupby("producer_id").last_ms.max()
    ended = failed.index.intersection(last.index)
    assert len(ended) > 20
    assert np.median(failed[ended] - last[ended]) < 1_000


def test_kubelets_pauses_grow_and_are_forgotten() -> None:
    roll = np.random.default_rng(1)
    pauses = reported_clients._kubelet_ms(np.array([5_000.0] * 7 + [700_000.0, 5_000.0, 5_000.0]), roll)
    rounded = np.round(pauses - 2_400, -4) / 1_000
    assert rounded.tolist() == [10, 20, 40, 80, 160, 300, 300, 10, 20, 40]


def test_times_of_trouble_do_not_overlap() -> None:
    for seed in range(50):
        troubles = reported_clients._troubles(WORLD, np.random.default_rng(seed), (1, 60))
        assert 1 <= len(troubles) <= 3
        assert all(end_ms <= begin_ms for (_, end_ms), (begin_ms, _) in pairwise(troubles))


def test_each_checkpoint_and_each_connection_is_a_producer() -> None:
    flink = lives_of("flink_checkpoints")
    user = reports.user(WORLD, NUMBER["flink_checkpoints"])
    each = flink[flink.pod == 0]
    apart_ms = np.diff(each.start_ms)
    assert user.deployments[0].is_transactional
    assert apart_ms.min() > 0.9 * np.median(apart_ms) > 50_000
    assert np.median(each.end_ms - each.start_ms) > np.median(apart_ms)
    bridge = lives_of("http_bridge")
    assert np.median(bridge.end_ms - bridge.start_ms) < 1_000
    assert set(bridge.requests) == {1}
