"""Cold start: running producers look new and are let in uncharged, so many of each user and no more."""

from __future__ import annotations

import pytest

from pidgate.quota.decisions import Bound, Forward, Reason, Refuse
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, UserQuota
from tests.support.questions import is_refused, question
from tests.support.rules import rule
from tests.unit.quota.histories import copied
from tests.unit.quota.world import HOUR_MS, enforcing, seeds


def starting(rate: int | None = 100, **quotas: object) -> ProducerIdQuota:
    state = ProducerIdQuota(enforcing(rate, **quotas), seeds(), 0)  # type: ignore[arg-type]
    state.begin_grace(HOUR_MS)
    return state


def reasons(answer: Forward | Refuse) -> list[Reason]:
    return [decision.reason for decision in answer.decisions]


@rule("Running producers are admitted uncharged and remembered during grace.", "cost")
def test_three_thousand_running_producers_are_let_in_uncharged_and_remembered() -> None:
    state = starting(300, false_positive_rate=1e-9)
    for producer_id in range(3_000):
        answer = state.decide(*question("alice", producer_id), producer_id)
        assert not is_refused(answer)
        assert reasons(answer) == [Reason.GRACE]
        assert answer.decisions[0].tokens_before == answer.decisions[0].tokens_after
    assert state.status("alice", 3_000).tokens == 300
    assert state.table.live("alice", 0).grace_admitted == 3_000
    assert all(state.table.remembers("alice", producer_id, 2 * HOUR_MS) for producer_id in range(3_000))
    assert state.table.live("bob", 0).grace_admitted == 0


@rule(
    "Requests forwarded undecided have a ceiling of ten times the user's rate, for each kind of id.",
    "failures",
)
def test_beyond_ten_times_the_rate_the_ordinary_decision_is_made() -> None:
    state = starting(10, users={"bob": UserQuota.per_window(20)})
    for producer_id in range(100):
        assert reasons(state.decide(*question("alice", producer_id), 0)) == [Reason.GRACE]
    for producer_id in range(100, 111):
        assert reasons(state.decide(*question("alice", producer_id), 0)) == [Reason.FIRST_SEEN]
    assert is_refused(state.decide(*question("alice", 111), 0))
    assert reasons(state.decide(*question("bob", 1), 0)) == [Reason.GRACE]


def test_one_request_may_stand_on_both_sides_of_the_bound() -> None:
    state = starting(1)
    for producer_id in range(8):
        state.decide(*question("alice", producer_id), 0)
    answer = state.decide(*question("alice", 100, 101, 102, 103, 104), 0)
    # Two as grace, two by the bucket, and the fifth has no token: the request is refused, and nothing is spent.
    assert is_refused(answer)
    assert [decision.producer_id for decision in answer.decisions] == [104]
    assert (state.table.live("alice", 0).grace_admitted, state.status("alice", 0).tokens) == (8, 1)
    passed = state.decide(*question("alice", 100, 101, 102, 103), 0)
    assert reasons(passed) == [Reason.GRACE, Reason.GRACE, Reason.FIRST_SEEN, Reason.FIRST_SEEN]
    assert (state.table.live("alice", 0).grace_admitted, state.status("alice", 0).tokens) == (10, -1)


@rule("A rate of 0 blocks new ids, also under grace.", "cost")
@pytest.mark.parametrize(
    ("rate", "cluster_rate_milli", "bound"), [(0, None, Bound.USER), (100, 0, Bound.CLUSTER)]
)
def test_who_is_blocked_is_blocked_under_grace(
    rate: int, cluster_rate_milli: int | None, bound: Bound
) -> None:
    answer = starting(rate, cluster_rate_milli=cluster_rate_milli).decide(*question("alice", 1), 0)
    assert isinstance(answer, Refuse)
    assert (reasons(answer), answer.bound) == ([Reason.BLOCKED], bound)


def test_a_user_without_a_rate_is_let_in_whatever_the_cluster_says() -> None:
    state = starting(None, cluster_rate_milli=5_000)
    for producer_id in range(500):
        assert reasons(state.decide(*question("alice", producer_id), 0)) == [Reason.GRACE]
    cluster = state.restorer.export_cluster_bucket(0)
    assert cluster is not None
    assert cluster.units == 5 * cluster.token_units


def test_established_is_not_asked_under_grace() -> None:
    state = starting()
    assert reasons(state.decide(*question("alice", 1, above_0=True), 0)) == [Reason.GRACE]
    over = state.decide(*question("alice", 2, above_0=True), HOUR_MS)
    assert reasons(over) == [Reason.ESTABLISHED]


def test_what_is_only_observed_stays_observed_and_uses_up_no_grace() -> None:
    """Transactional ids under their own switch, users in observe, exempt ones: as without a cold start."""
    quotas = {"bob": UserQuota(mode=Mode.OBSERVE), "carol": UserQuota(exempt=True)}
    state = starting(1, users=quotas)
    for producer_id in range(20):
        answer = state.decide(*question("alice", producer_id, transactional=True), 0)
        assert reasons(answer) == [Reason.OBSERVE]
    assert (state.table.live("alice", 0).grace_admitted, state.status("alice", 0).tokens) == (0, 1)
    assert reasons(state.decide(*question("alice", 100), 0)) == [Reason.GRACE]
    assert reasons(state.decide(*question("bob", 1), 0)) == [Reason.OBSERVE]
    assert reasons(state.decide(*question("carol", 1), 0)) == [Reason.EXEMPT]


def test_transactional_ids_under_enforcement_have_grace_too() -> None:
    state = starting(1, transactional=Mode.ENFORCE)
    assert reasons(state.decide(*question("alice", 1, transactional=True), 0)) == [Reason.GRACE]


def test_grace_ends_at_its_time() -> None:
    state = starting(1)
    assert state.table.grace.until_ms == HOUR_MS
    assert reasons(state.decide(*question("alice", 1), HOUR_MS - 1)) == [Reason.GRACE]
    assert reasons(state.decide(*question("alice", 2), HOUR_MS)) == [Reason.FIRST_SEEN]
    assert reasons(state.decide(*question("alice", 1), HOUR_MS)) == []
    state.sweep(HOUR_MS)
    assert state.table.grace.until_ms == 0


def test_without_grace_there_is_none() -> None:
    state = ProducerIdQuota(enforcing(1), seeds(), 0)
    assert state.table.grace.until_ms == 0
    assert reasons(state.decide(*question("alice", 1), 0)) == [Reason.FIRST_SEEN]


def test_waiting_for_the_users_to_be_forgotten_renews_no_grace() -> None:
    """With a short time to remember, a user could otherwise come to ten times its rate again and again."""
    state = starting(1, remember_ms=4_000)
    for producer_id in range(10):
        state.decide(*question("alice", producer_id), 0)
    state.sweep(HOUR_MS // 2)
    assert state.table.live("alice", 0).grace_admitted == 10
    assert reasons(state.decide(*question("alice", 50), HOUR_MS // 2)) == [Reason.FIRST_SEEN]
    state.sweep(3 * HOUR_MS)
    assert state.users() == []


def test_what_a_restart_has_let_in_counts_on() -> None:
    state = starting(1)
    for producer_id in range(7):
        state.decide(*question("alice", producer_id), 0)
    copy = copied(state, ProducerIdQuota, enforcing(1), 0, 0)
    copy.begin_grace(HOUR_MS)
    for producer_id in range(50, 53):
        assert reasons(copy.decide(*question("alice", producer_id), 0)) == [Reason.GRACE]
    assert reasons(copy.decide(*question("alice", 60), 0)) == [Reason.FIRST_SEEN]


def test_the_bound_is_one_for_all_gateways_that_start_together() -> None:
    state = starting(1)
    for producer_id in range(10):
        assert state.admitted_elsewhere("alice", producer_id, 0, Reason.GRACE)
        assert not state.admitted_elsewhere("alice", producer_id, 0, Reason.GRACE)
    assert (state.table.live("alice", 0).grace_admitted, state.status("alice", 0).tokens) == (10, 1)
    assert reasons(state.decide(*question("alice", 60), 0)) == [Reason.FIRST_SEEN]


def test_an_id_that_waits_may_come_in_by_grace() -> None:
    state = ProducerIdQuota(enforcing(1), seeds(), 0)
    for producer_id in (1, 2):
        state.decide(*question("alice", producer_id), 0)
    assert is_refused(state.decide(*question("alice", 3, came_back=True), 0))
    state.begin_grace(HOUR_MS)
    assert reasons(state.decide(*question("alice", 3, came_back=True), 0)) == [Reason.GRACE]
    assert state.status("alice", 0).waiting == 0


def test_what_a_history_tells_of_grace_counts_once_and_not_when_it_is_too_old() -> None:
    state = starting(1)
    state.restorer.restore_grace("alice", 99, -100 * HOUR_MS, 0)
    assert state.users() == []
    for _ in range(2):
        for producer_id in range(10):
            state.restorer.restore_grace("alice", producer_id, -1_000, 0)
    assert (state.table.live("alice", 0).grace_admitted, state.status("alice", 0).tokens) == (10, 1)
    assert reasons(state.decide(*question("alice", 60), 0)) == [Reason.FIRST_SEEN]


def test_what_passed_before_grace_could_begin_counts_as_grace() -> None:
    """While the state was being restored it was said to be observed."""
    state = starting(1)
    for producer_id in range(12):
        state.admitted_meanwhile("alice", producer_id, 0, Reason.RESTORING)
    assert (state.table.live("alice", 0).grace_admitted, state.status("alice", 0).tokens) == (10, -1)
    assert not state.in_fleet
