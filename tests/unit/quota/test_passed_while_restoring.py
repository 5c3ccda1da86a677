"""While the state is being restored everything passes, and afterwards costs what it would have cost observed."""

from __future__ import annotations

import pytest

from pidgate.quota import restoring as restoring_module
from pidgate.quota.decisions import Reason
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support.questions import decide_name, is_refused, question
from tests.support.rules import rule
from tests.unit.quota.world import HOUR_MS, enforcing, seeds


def restoring(rate: int = 100, **quotas: object) -> ProducerIdQuota:
    return of_quotas(enforcing(rate, **quotas))  # type: ignore[arg-type]


def of_quotas(quotas: Quotas) -> ProducerIdQuota:
    return ProducerIdQuota(quotas, seeds(), 0, is_restored=False)


def end_restoring(state: ProducerIdQuota) -> None:
    assert state.hand_over(0) == 0
    state.end_restoring()


@rule(
    "While the state is being restored ten windows' worth of new ids of a user pass; the rest waits and is judged.",
    "failures",
)
def test_everything_passes_and_each_id_is_told_of_once() -> None:
    state = restoring()
    answer = state.decide(*question("alice", 1, 2), 5)
    assert answer is not None
    assert not is_refused(answer)
    assert [(d.producer_id, d.admitted, d.reason) for d in answer.decisions] == [
        (1, True, Reason.RESTORING),
        (2, True, Reason.RESTORING),
    ]
    again = state.decide(*question("alice", 2, 3), 6)
    assert again is not None
    assert [decision.producer_id for decision in again.decisions] == [3]
    assert state.users() == ["alice"]
    assert (state.status("alice", 0).live_ids, state.status("bob", 0).live_ids) == (3, 0)
    assert state.status("alice", 0).tokens is None
    assert (state.status("alice", 0).waiting, state.status("alice", 0).oldest_waiting_ms) == (0, 0)
    assert (state.is_restored, state.sweep(0), state.table.users()) == (False, [], [])


@rule(
    "While the state is being restored ten windows' worth of new ids of a user pass; the rest waits and is judged.",
    "failures",
)
def test_what_the_restored_state_does_not_hold_is_charged_as_observed() -> None:
    state = restoring(2)
    state.decide(*question("alice", *range(10)), 0)
    for producer_id in range(4):
        state.restorer.restore_id("alice", producer_id, -1_000, 0)
    end_restoring(state)
    assert state.status("alice", 0).tokens == -1  # two tokens for six ids
    assert all(state.table.remembers("alice", producer_id, 0) for producer_id in range(10))
    assert state.noted.users() == []


def names_pass(state: ProducerIdQuota, *hashed: int) -> list[int]:
    """Return how many decisions there are about each: one that is new is told of once."""
    answers = [decide_name(state, "alice", one) for one in hashed]
    assert not any(is_refused(answer) for answer in answers)
    return [len(answer.decisions) for answer in answers]


def test_transactional_ids_that_pass_are_remembered_and_charged_as_observed() -> None:
    quotas = Quotas(Mode.ENFORCE, users={"alice": UserQuota(transactional_ids_rate_milli=3_000)})
    state = of_quotas(quotas)
    assert names_pass(state, 1, 2, 1, 3, 2) == [1, 1, 0, 1, 0]
    state.insert_transactional_id("alice", 4, 0)
    state.restorer.restore_transactional_id("alice", 1, -1_000, 0, Reason.REFRESH)
    assert state.hand_over(0, at_most=2) == 2
    end_restoring(state)
    asked = [decide_name(state, "alice", one) for one in (1, 2, 3, 4, 5, 6, 7)]
    # Two of the three tokens are spent: 2 and 3 were new, 4 passed uncharged.
    assert [is_refused(answer) for answer in asked] == [False] * 6 + [True]
    assert all(not answer.decisions for answer in asked[1:4])


def test_under_grace_they_count_as_grace() -> None:
    quotas = Quotas(Mode.ENFORCE, users={"alice": UserQuota(transactional_ids_rate_milli=1_000)})
    state = of_quotas(quotas)
    state.begin_grace(HOUR_MS)
    assert names_pass(state, *range(10)) == [1] * 10
    end_restoring(state)
    assert [is_refused(decide_name(state, "alice", one)) for one in range(9, 13)] == [
        False,
        False,
        False,
        True,
    ], "ten were grace, two have a token"


def test_what_was_known_before_costs_nothing() -> None:
    state = restoring()
    state.decide(*question("alice", 1, 2, 3), 0)
    for producer_id in (1, 2):
        state.restorer.restore_id("alice", producer_id, -1_000, 0)
    end_restoring(state)
    assert state.status("alice", 0).tokens == 99


def test_an_exempt_user_is_not_charged() -> None:
    state = restoring(users={"alice": UserQuota(exempt=True)})
    state.decide(*question("alice", 1), 0)
    end_restoring(state)
    assert (state.status("alice", 0).tokens, state.table.remembers("alice", 1, 0)) == (100, True)


def test_what_failed_open_is_not_charged() -> None:
    state = restoring()
    state.insert_uncharged("alice", 1, 0)
    end_restoring(state)
    assert (state.status("alice", 0).tokens, state.table.remembers("alice", 1, 0)) == (100, True)


@pytest.mark.parametrize("old", [1, 2, 3, 9])
def test_a_new_id_inherits_if_the_old_one_turns_out_to_be_known(old: int) -> None:
    """1 was restored, 2 has come meanwhile, 3 came in plain use, nobody knows of 9: all of it observed."""
    state = restoring()
    state.restorer.restore_id("alice", 1, -1_000, 0, transactional=True)
    if old in (2, 3):
        state.decide(*question("alice", old, transactional=old == 2), 0)
    assert state.inherit("alice", old, 50, 0)
    end_restoring(state)
    assert state.status("alice", 0).tokens == 100 - (old == 3)
    own, _ = state.table.observed_buckets(state.table.live("alice", 0), 0)
    assert own is not None
    assert own.units(0) == (100 - (old != 1)) * own.token_units
    assert state.table.remembers("alice", 50, 0, transactional=True)
    assert not state.table.remembers("alice", 50, 0)


def test_it_is_handed_over_in_portions_while_questions_are_answered() -> None:
    state = restoring()
    state.decide(*question("alice", *range(5)), 0)
    state.decide(*question("bob", 1), 0)
    assert state.hand_over(0, at_most=3) == 3
    state.decide(*question("alice", 0, 77), 0)  # 0 was handed over before
    assert state.hand_over(0, at_most=100) == 0
    state.end_restoring()
    assert (state.status("alice", 0).tokens, state.status("bob", 0).tokens) == (94, 99)
    assert state.table.remembers("alice", 77, 0)


def test_it_is_bounded_over_all_users_and_counts_what_it_could_not_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restoring_module, "MOST_NOTED_IDS", 3)
    state = restoring()
    state.decide(*question("alice", 1, 2), 0)
    answer = state.decide(*question("bob", 3, 4, 5), 0)
    assert not is_refused(answer)
    assert len(answer.decisions) == 3
    state.insert_uncharged("bob", 6, 0)
    assert state.inherit("bob", 3, 7, 0)
    assert state.noted.not_noted == 4
    end_restoring(state)
    assert [state.table.remembers("bob", producer_id, 0) for producer_id in (3, 4, 6, 7)] == [
        True,
        False,
        False,
        False,
    ]
    state.decide(*question("bob", 8), 0)  # there is room again
    assert state.noted.not_noted == 4
