"""The state of all users: questions and answers, the bound over any window, fairness of the queue."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.quota import entities
from pidgate.quota.decisions import Forward, Reason, Refuse
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import UserQuota
from pidgate.quota.users import LiveUser, UserTable
from tests.support.questions import is_refused, question
from tests.support.rules import rule
from tests.unit.quota.world import HOUR_MS, World, batch, enforcing, seeds


@rule("A bucket admits its capacity, its refill and one more.", "cost")
@given(
    rate_milli=st.integers(1, 20_000),
    burst=st.fractions(Fraction(1, 2), 3, max_denominator=4),
    steps=st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 40)), min_size=1, max_size=30),
)
def test_admitted_ids_of_any_window_are_bounded(
    rate_milli: int, burst: Fraction, steps: list[tuple[int, int]]
) -> None:
    """Whatever comes back or is new: (1 + burst) x rate + 1 in any one window."""
    window_ms = 60_000
    # A false positive would admit unpaid; with a billionth there is none in these few hundred ids.
    quotas = enforcing(Fraction(rate_milli, 1000), burst=burst, window_ms=window_ms, false_positive_rate=1e-9)
    world = World(quotas)
    admitted: list[int] = []
    pending: list[int] = []
    next_id = 0
    sessions = [world.connect(address=f"10.0.0.{number}") for number in range(3)]
    for elapsed_ms, arrivals in steps:
        world.now_ms += elapsed_ms
        new = list(range(next_id, next_id + arrivals))
        next_id += arrivals
        still_pending = []
        for producer_id in pending[:20] + new:
            verdict = world.judge(sessions[producer_id % 3], batch(producer_id))
            if isinstance(verdict, Forward):
                admitted.append(world.now_ms)
            else:
                still_pending.append(producer_id)
        pending = still_pending
    most = (1 + burst) * Fraction(rate_milli, 1000) + 1
    for start_ms in set(admitted):
        assert sum(start_ms <= at_ms <= start_ms + window_ms for at_ms in admitted) <= most


def test_the_throttle_of_a_place_is_the_time_until_its_token() -> None:
    quota = ProducerIdQuota(enforcing(3_600, max_throttle_ms=60_000), seeds(), 0)
    for number in range(3_601):
        assert not is_refused(quota.decide(*question("alice", number), 0))
    answers = [quota.decide(*question("alice", 10_000 + n, came_back=True), 0) for n in range(3)]
    assert [answer.decisions[0].queue_position for answer in answers] == [0, 1, 2]
    assert [answer.decisions[0].throttle_time_ms for answer in answers] == [1_000, 2_000, 3_000]
    first_seen = quota.decide(*question("alice", 20_000), 0)
    assert first_seen.decisions[0].throttle_time_ms == 4_000
    assert first_seen.decisions[0].reason is Reason.FIRST_SEEN


@rule("A throttle ends in time: never above max_throttle, and not extended by an early return.", "mutes")
def test_a_throttle_is_at_least_100_ms_and_at_most_the_cap() -> None:
    quick = ProducerIdQuota(enforcing(3_600_000), seeds(), 0)
    quick.decide(*question("alice", 0, 1), 0)
    slow = ProducerIdQuota(enforcing(1), seeds(), 0)
    for number in range(2):
        assert not is_refused(slow.decide(*question("alice", number), 0))
    assert slow.decide(*question("alice", 9), 0).decisions[0].throttle_time_ms == 10_000
    thousand_a_second = ProducerIdQuota(enforcing(1, window_ms=1), seeds(), 0)
    for number in range(2):
        assert not is_refused(thousand_a_second.decide(*question("alice", number), 0))
    assert thousand_a_second.decide(*question("alice", 9), 0).decisions[0].throttle_time_ms == 100


def test_a_healthy_machine_is_served_in_turn_beside_twenty_blocking_threads() -> None:
    """One id per batch and thread, each blocking until it is admitted; one token every second."""
    world = World(enforcing(3_600, max_throttle_ms=10_000))
    world.spend(3_601)
    rogue_ids = {thread: thread * 1_000_000 + 5 for thread in range(20)}
    rogues = {
        thread: world.connect(address="10.6.6.6", client_id=f"producer-{thread}") for thread in rogue_ids
    }
    due = dict.fromkeys(rogue_ids, 0)
    healthy = world.connect(address="10.0.0.7")
    healthy_due_ms = 30_000
    while world.now_ms < 120_000:
        world.now_ms += 100
        for thread, producer_id in rogue_ids.items():
            if due[thread] <= world.now_ms:
                verdict = world.judge(rogues[thread], batch(producer_id))
                if isinstance(verdict, Refuse):
                    due[thread] = world.now_ms + verdict.throttle_time_ms
                else:
                    rogue_ids[thread] += 1
        if healthy_due_ms <= world.now_ms:
            verdict = world.judge(healthy, batch(7))
            if isinstance(verdict, Forward):
                break
            assert isinstance(verdict, Refuse)
            healthy_due_ms = world.now_ms + verdict.throttle_time_ms
    assert world.now_ms - 30_000 <= 25_000


def test_the_queue_of_a_user_is_bounded_and_the_rest_waits_outside() -> None:
    quota = ProducerIdQuota(enforcing(1, queue=1), seeds(), 0)
    for number in range(2):
        quota.decide(*question("alice", number), 0)
    assert quota.decide(*question("alice", 10, came_back=True), 0).decisions[0].reason is Reason.QUEUE
    assert quota.decide(*question("alice", 11, came_back=True), 0).decisions[0].reason is Reason.FIRST_SEEN
    assert quota.status("alice", 0).waiting == 1


@rule("An id admitted elsewhere leaves the retry queue.", "fleet")
def test_an_id_let_in_by_other_means_leaves_the_queue() -> None:
    quota = ProducerIdQuota(enforcing(1), seeds(), 0)
    for number in range(2):
        quota.decide(*question("alice", number), 0)
    quota.decide(*question("alice", 10, came_back=True), 0)
    quota.insert_uncharged("alice", 10, 0)
    assert quota.status("alice", 0).waiting == 0
    assert not is_refused(quota.decide(*question("alice", 10), 0))


def test_unknown_users_have_nothing() -> None:
    quota = ProducerIdQuota(enforcing(1), seeds(), 0)
    assert not quota.table.remembers("nobody", 1, 0)
    assert quota.status("nobody", 0).tokens is None
    assert (quota.status("nobody", 0).live_ids, quota.status("nobody", 0).waiting) == (0, 0)
    assert quota.status("nobody", 0).oldest_waiting_ms == 0
    assert quota.users() == []


def test_the_same_questions_give_the_same_answers() -> None:
    """A replay is exact: integers all the way, and time is an argument."""
    quotas = enforcing(Fraction(1_234, 7), window_ms=HOUR_MS)
    first, second = ProducerIdQuota(quotas, seeds(), 0), ProducerIdQuota(quotas, seeds(9_999), 0)
    for number in range(400):
        now_ms = number * 377
        verdicts = [
            state.decide(*question("alice", number % 300, came_back=number >= 300), now_ms)
            for state in (first, second)
        ]
        assert verdicts[0] == verdicts[1]


def test_a_change_of_quotas_finds_the_state_under_a_former_name() -> None:
    quotas = enforcing(1, users={"alice": UserQuota.per_window(100)})
    quota = ProducerIdQuota(quotas, seeds(), 0, former_name=lambda user: f"hash of {user}")
    quota.table.live("hash of alice", 0)
    quota.set_quotas(quotas, 0)
    assert quota.users() == ["alice"]
    quota.table.live("hash of bob", 0)
    quota.decide(*question("bob", 1), 0)
    assert quota.users() == ["alice", "bob"]


def test_overfull_filters_are_counted() -> None:
    quota = ProducerIdQuota(enforcing(None, max_live_ids=200, layers=1), seeds(), 0)
    # 80 exact ids are four fifths of the budget, and 4,000 in layers are guaranteed.
    for number in range(4_130):
        quota.decide(*question("alice", number), 0)
    assert quota.table.overfull_inserts == 50
    assert quota.table.filter_bytes > 0


def test_what_is_known_under_another_name_becomes_the_users() -> None:
    quota = ProducerIdQuota(enforcing(1, users={"alice": UserQuota.per_window(100)}), seeds(), 0)
    quota.insert_uncharged("hash", 1, 0)
    quota.table.rename("hash", "alice", 0)
    assert (quota.users(), quota.table.remembers("alice", 1, 0)) == (["alice"], True)
    assert not any(is_refused(quota.decide(*question("alice", number), 0)) for number in range(100, 150))
    quota.insert_uncharged("hash", 2, 0)
    held = quota.table._budget.held
    quota.table.rename("hash", "alice", 0)  # what is known of alice stays, and the other's room is free again
    assert (quota.users(), quota.table.remembers("alice", 2, 0)) == (["alice"], False)
    assert quota.table._budget.held < held
    quota.table.rename("nobody", "alice", 0)
    assert quota.table.remembers("alice", 1, 0)


class _UserForEachName(UserTable):
    def live(self, user: str, now_ms: int, origin: str | None = None) -> LiveUser:
        """Mutant: every name gets a state of its own."""
        entities.MOST_USERS = 1 << 60  # type: ignore[misc]
        return super().live(user, now_ms, origin)


def _users_of(quota: ProducerIdQuota) -> int:
    for number in range(50):
        quota.decide(*question(f"user-{number}", number), 0)
    return len(quota.users())


def test_no_number_of_names_makes_the_table_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entities, "MOST_USERS", 10)
    quota = ProducerIdQuota(enforcing(1), seeds(), 0)
    quota.decide(*question("alice", 9), 0)
    assert _users_of(quota) == 9, "all come from one address, which leaves a fifth free"
    assert quota.table.remembers("alice", 9, 0), "nobody's state is forgotten for it"
    assert is_refused(quota.decide(*question("one more", 99), 0)), "they share one quota"
    mutant = ProducerIdQuota(enforcing(1), seeds(), 0)
    mutant.table = _UserForEachName(enforcing(1), seeds(), 0)
    assert _users_of(mutant) == 50
