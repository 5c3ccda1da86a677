"""New transactional ids are limited at InitProducerId, remembered for seven days, and shared by the fleet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidgate.events.redaction import TRANSACTIONAL_ID, hash64
from pidgate.quota import users
from pidgate.quota.decisions import FORWARD, Forward, Reason, Refuse
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.quota.users import REMEMBER_MS
from tests.support.questions import decide_name, is_refused
from tests.support.rules import rule
from tests.unit.quota.world import HOUR_MS, seeds

DAY_MS = 24 * HOUR_MS


def limited(rate: int | None = 10, *, mode: Mode = Mode.ENFORCE, exempt: bool = False) -> Quotas:
    rate_milli = None if rate is None else 1_000 * rate
    quota = UserQuota(mode=mode, exempt=exempt, transactional_ids_rate_milli=rate_milli)
    return Quotas(Mode.ENFORCE, ProducerIdSettings(), users={"alice": quota})


def state_of(quotas: Quotas | None = None) -> ProducerIdQuota:
    return ProducerIdQuota(quotas or limited(), seeds(), 0)


def asked(state: ProducerIdQuota, name: str, now_ms: int = 0) -> Forward | Refuse:
    hashed = hash64(TRANSACTIONAL_ID, name)
    return decide_name(state, "alice", hashed, now_ms)


def passed(state: ProducerIdQuota, names: list[str], now_ms: int = 0) -> int:
    return sum(not is_refused(asked(state, name, now_ms)) for name in names)


def names(first: int, count: int) -> list[str]:
    return [f"app-{number}" for number in range(first, first + count)]


@rule("New transactional ids have a rate of their own and are remembered for seven days.", "cost")
def test_a_fresh_one_at_each_start_is_refused() -> None:
    state = state_of()
    assert passed(state, names(0, 60)) == 11
    assert passed(state, names(11, 49)) == 0, "none of them has become known by asking again"
    (decision,) = asked(state, "one more").decisions
    assert (decision.reason, decision.throttle_time_ms) == (Reason.FIRST_SEEN, 10_000)
    assert decision.transactional


def test_kept_ones_cost_once() -> None:
    state = state_of()
    for start in range(50):
        assert passed(state, names(0, 11), start * 60_000) == 11


@rule("New transactional ids have a rate of their own and are remembered for seven days.", "cost")
def test_it_is_remembered_for_seven_days_from_its_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def reason_after(days: int) -> list[Reason]:
        state = state_of(limited(1_000))
        asked(state, "kept")
        return [decision.reason for decision in asked(state, "kept", days * DAY_MS).decisions]

    assert reason_after(0) == []
    assert reason_after(7) == [Reason.REFRESH]
    assert reason_after(10) == [Reason.FIRST_SEEN]
    monkeypatch.setattr(users, "REMEMBER_MS", DAY_MS)  # the mutant
    assert reason_after(7) == [Reason.FIRST_SEEN]


def test_off_unless_a_rate_is_set() -> None:
    state = state_of(limited(None))
    assert [asked(state, name) for name in names(0, 3)] == [FORWARD] * 3
    assert state.table.live("alice", 0).transactional_ids is None
    assert state.table.history_ms < REMEMBER_MS < state_of().table.history_ms


def test_observed_ones_pass_and_say_what_would_be_refused() -> None:
    state = state_of(limited(3, mode=Mode.OBSERVE))
    decisions = [asked(state, name).decisions[0] for name in names(0, 6)]
    assert [decision.would_refuse for decision in decisions] == [False] * 4 + [True] * 2
    assert {decision.reason for decision in decisions} == {Reason.OBSERVE}
    assert asked(state, "app-5") == FORWARD


def test_exempt_users_are_never_charged() -> None:
    state = state_of(limited(1, exempt=True))
    assert passed(state, names(0, 20)) == 20
    assert asked(state, "more").decisions[0].reason is Reason.EXEMPT


def test_0_blocks_what_is_new_and_says_so() -> None:
    state = state_of(limited(0))
    state.begin_grace(HOUR_MS)
    answer = asked(state, "new")
    assert (is_refused(answer), answer.decisions[0].reason) == (True, Reason.BLOCKED)


def test_a_cold_start_has_grace_ten_times_the_rate_at_most() -> None:
    state = state_of(limited(2))
    state.begin_grace(HOUR_MS)
    assert passed(state, names(0, 40)) == 20 + 3
    assert passed(state, names(0, 20), HOUR_MS) == 20


def test_a_grace_that_goes_on_lets_no_more_in() -> None:
    state = state_of(limited(2))
    state.begin_grace(HOUR_MS)
    assert passed(state, names(0, 40)) == 20 + 3
    state.begin_grace(2 * HOUR_MS)
    assert passed(state, names(100, 140)) == 0


def test_it_costs_no_producer_id_and_the_other_way_round() -> None:
    quota = UserQuota(1_000, transactional_ids_rate_milli=1_000)
    state = state_of(Quotas(Mode.ENFORCE, ProducerIdSettings(), users={"alice": quota}))
    assert passed(state, names(0, 5)) == 2
    assert state.status("alice", 0).tokens == 1


def test_a_changed_rate_holds_at_once_and_a_removed_one_stops_refusing() -> None:
    state = state_of(limited(10))
    passed(state, names(0, 11))
    state.set_quotas(limited(100), 0)
    assert passed(state, names(11, 5)) == 0, "a debt stays what it is"
    state.set_quotas(limited(None), 0)
    assert passed(state, names(11, 5)) == 5


def test_what_another_gateway_admits_is_charged_once() -> None:
    state = state_of(limited(10))
    for _ in range(3):
        state.restorer.restore_transactional_id("alice", 7, 0, 0, Reason.FIRST_SEEN)
    assert passed(state, names(0, 30)) == 10


def test_an_export_holds_them() -> None:
    state = state_of()
    passed(state, names(0, 5))
    (user,) = state.restorer.export_users(0)
    copy = state_of()
    copy.restorer.import_user(user, 0)
    assert [asked(copy, name) for name in names(0, 5)] == [FORWARD] * 5
    assert passed(copy, names(5, 30)) == 6


def test_a_user_of_whom_only_these_are_known_is_kept_and_then_dropped() -> None:
    state = state_of()
    asked(state, "kept")
    state.sweep(DAY_MS)
    assert state.users() == ["alice"]
    state.sweep(30 * DAY_MS)
    assert state.users() == []


def test_a_blocked_user_has_no_bucket_to_charge() -> None:
    state = state_of(limited(0))
    state.restorer.restore_transactional_id("alice", 7, 0, 0, Reason.FIRST_SEEN)
    assert decide_name(state, "alice", 7).decisions == ()
    assert is_refused(decide_name(state, "alice", 8))


def test_new_settings_hold_for_their_filter_and_none_counts_against_a_later_grace() -> None:
    state = state_of()
    assert passed(state, names(0, 3)) == 3
    state.set_quotas(replace(limited(), producer_ids=ProducerIdSettings(layers=2)), 0)
    assert passed(state, names(0, 3)) == 3
    (exported,) = state.restorer.export_users(0)
    assert exported.without_grace() == exported


def test_without_a_rate_and_after_seven_days_nothing_is_restored() -> None:
    state = state_of()
    state.restorer.restore_transactional_id("bob", 7, 0, 0, Reason.FIRST_SEEN)
    state.restorer.restore_transactional_id("alice", 7, -REMEMBER_MS, 0, Reason.FIRST_SEEN)
    assert [live.transactional_ids for live in map(state.table.find, ("bob", "alice")) if live] == [
        None,
        None,
    ]
