"""What an admitted id costs, over restarts and in a fleet."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from pidgate.quota.decisions import Reason
from pidgate.quota.producer_ids import ProducerIdQuota
from tests.support.questions import is_refused, question
from tests.unit.quota.histories import (
    StateClass,
    check_copy,
    check_fleet_remembers,
    check_fleet_tokens,
    check_restart,
)
from tests.unit.quota.world import HOUR_MS, enforcing, seeds

DAY_MS: Final = 24 * HOUR_MS


def _with(check: Callable[[Random, StateClass], None], histories: int) -> Callable[[StateClass], None]:
    def checked(make: StateClass) -> None:
        for seed in range(histories):
            check(Random(seed), make)

    return checked


def _refused_is_not_remembered(make: StateClass) -> None:
    state = make(enforcing(1), seeds(), 0)
    for producer_id in (1, 2):
        assert not is_refused(state.decide(*question("alice", producer_id), 0))
    assert is_refused(state.decide(*question("alice", 3), 0))
    assert not state.table.remembers("alice", 3, 0)
    assert is_refused(state.decide(*question("alice", 3), 0))


def _debt_is_floored(make: StateClass) -> None:
    state = make(enforcing(100), seeds(), 0)
    for producer_id in range(1_000):
        state.admitted_elsewhere("alice", producer_id, 0, Reason.FIRST_SEEN)
    assert state.status("alice", 0).tokens == -100


def _refreshes_are_free(make: StateClass) -> None:
    state = make(enforcing(100), seeds(), 0)
    state.admitted_elsewhere("alice", 1, 0, Reason.REFRESH)
    assert state.status("alice", 0).tokens == 100


def _let_in_elsewhere_leaves_the_queue(make: StateClass) -> None:
    state = make(enforcing(1), seeds(), 0)
    state.decide(*question("alice", 1), 0)
    state.decide(*question("alice", 2), 0)
    assert is_refused(state.decide(*question("alice", 3, came_back=True), 0))
    state.admitted_elsewhere("alice", 3, 0, Reason.QUEUE)
    assert state.status("alice", 0).waiting == 0


def _the_future_is_now(make: StateClass) -> None:
    state = make(enforcing(100), seeds(), 0)
    state.restorer.restore_id("alice", 7, 100 * DAY_MS, 0)
    assert not state.table.remembers("alice", 7, 3 * DAY_MS)


def _the_newest_balance_counts(make: StateClass) -> None:
    state = make(enforcing(100), seeds(), 0)
    token_units = HOUR_MS * 1_000
    state.restorer.restore_tokens("alice", 10 * token_units, token_units, -360_000)
    state.restorer.restore_tokens("alice", 99 * token_units, token_units, -720_000)
    assert state.status("alice", 0).tokens == 20


def _grace_is_free_bounded_and_remembered(make: StateClass) -> None:
    state = make(enforcing(10), seeds(), 0)
    state.begin_grace(HOUR_MS)
    for producer_id in range(100):
        assert not is_refused(state.decide(*question("alice", producer_id), 0))
    assert state.status("alice", 0).tokens == 10
    assert all(state.table.remembers("alice", producer_id, HOUR_MS) for producer_id in range(100))
    assert [is_refused(state.decide(*question("alice", 1_000 + number), 0)) for number in range(12)] == [
        *[False] * 11,
        True,
    ]


RULES: Final[dict[str, Callable[[StateClass], None]]] = {
    "refused is not remembered": _refused_is_not_remembered,
    "debt is floored": _debt_is_floored,
    "refreshes are free": _refreshes_are_free,
    "let in elsewhere leaves the queue": _let_in_elsewhere_leaves_the_queue,
    "the future is now": _the_future_is_now,
    "the newest balance counts": _the_newest_balance_counts,
    "grace": _grace_is_free_bounded_and_remembered,
    "restart": _with(check_restart, 150),
    "copy": _with(check_copy, 150),
    "fleet remembers": _with(check_fleet_remembers, 300),
    "fleet tokens": _with(check_fleet_tokens, 30),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_code_keeps_every_rule(rule: str) -> None:
    RULES[rule](ProducerIdQuota)
