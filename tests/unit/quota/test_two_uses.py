"""An id is known for the use in which it was admitted, and who is never refused spends nothing of others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pidgate.quota.admission import Admission
from pidgate.quota.decisions import FORWARD, Forward, Reason
from pidgate.quota.entities import User
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import LiveUser
from tests.support.questions import question
from tests.support.rules import rule
from tests.unit.quota.world import HOUR_MS, World, batch, enforcing, seeds

StateClass = Callable[[Quotas, Callable[[], int], int], ProducerIdQuota]


class OneFilterForBoth(ProducerIdQuota):
    """Mutant: what is remembered is the id alone."""

    def __init__(self, quotas: Quotas, secret_source: Callable[[], int], now_ms: int) -> None:
        super().__init__(quotas, secret_source, now_ms)
        make = self.table.new

        def new(user: User, secrets: tuple[int, int], now_ms: int) -> LiveUser:
            live = make(user, secrets, now_ms)
            live.transactional_filter = live.filter
            return live

        self.table.new = new  # type: ignore[method-assign]


class OneCacheForBoth(Admission):
    """Mutant: a connection's cache does not tell the uses apart."""

    def _slice_key(self, now_ms: int, transactional: bool) -> int:
        return super()._slice_key(now_ms, False)


class ObservedSpends(ProducerIdQuota):
    """Mutant: what is never refused spends the tokens of what is."""

    def __init__(self, quotas: Quotas, secret_source: Callable[[], int], now_ms: int) -> None:
        super().__init__(quotas, secret_source, now_ms)
        table = self.table

        def charge_observed(live: LiveUser, now_ms: int) -> None:
            table.charge(live, TokenBucket.charge_floored, now_ms)

        table.charge_observed = charge_observed  # type: ignore[method-assign]


def world_of(quotas: Quotas, make: StateClass, admission: type[Admission] = Admission) -> World:
    return World(quotas, admission(quotas, seeds(), 0, state=make(quotas, seeds(), 0)))


def sheds(make: StateClass, admission: type[Admission] = Admission, *, same_connection: bool = False) -> int:
    """Count ids of an exhausted user that pass after a Produce in a transaction that nobody began."""
    world = world_of(enforcing(0), make, admission)
    passed = 0
    for producer_id in range(20):
        first = world.connect()
        assert isinstance(world.judge(first, batch(producer_id), transactional=True), Forward)
        client = first if same_connection else world.connect()
        passed += isinstance(world.judge(client, batch(producer_id)), Forward)
    return passed


@rule("Use in transactions does not make an id known for plain use, nor the reverse.", "cost")
@pytest.mark.parametrize("same_connection", [False, True])
def test_a_transaction_makes_nothing_known_for_plain_use(same_connection: bool) -> None:
    assert sheds(ProducerIdQuota, same_connection=same_connection) == 0
    assert sheds(OneFilterForBoth, same_connection=same_connection) == 20
    assert sheds(ProducerIdQuota, OneCacheForBoth, same_connection=True) == 20


def test_the_hot_path_asks_for_the_use() -> None:
    world = World(enforcing(0))
    client = world.connect()
    world.judge(client, batch(7), transactional=True)
    known = [world.admission.knows(client, 7, 0, [b"t"], [[0]], use, 0) for use in (False, True)]
    assert known == [False, True]


def test_each_use_is_known_again_in_its_own_way() -> None:
    world = World(enforcing(100))
    for use in (False, True):
        assert world.judge(world.connect(), batch(1), transactional=use) is not FORWARD
    for use in (False, True):
        assert world.judge(world.connect(), batch(1), transactional=use) is FORWARD


def test_no_number_of_transactional_ids_fills_the_filter_of_the_others() -> None:
    state = ProducerIdQuota(enforcing(100, max_live_ids=2_000), seeds(), 0)
    for producer_id in range(9_500):
        state.decide(*question("alice", producer_id, transactional=True), 0)
    assert state.table.overfull_inserts > 0
    taken = sum(state.table.remembers("alice", producer_id, 0) for producer_id in range(10**6, 10**6 + 1_000))
    assert taken == 0


def test_failing_open_and_inheriting_keep_to_the_use() -> None:
    state = ProducerIdQuota(enforcing(0), seeds(), 0)
    state.insert_uncharged("alice", 1, 0, transactional=True)
    state.insert_uncharged("alice", 2, 0)
    assert state.inherit("alice", 1, 11, 0)
    assert not state.inherit("alice", 2, 12, 0)
    found = {
        producer_id: [
            state.table.remembers("alice", producer_id, 0, transactional=use) for use in (False, True)
        ]
        for producer_id in (1, 2, 11, 12)
    }
    assert found == {1: [False, True], 2: [True, False], 11: [False, True], 12: [False, False]}


def test_what_passed_before_the_state_was_there_keeps_its_use() -> None:
    state = ProducerIdQuota(enforcing(100), seeds(), 0, is_restored=False)
    state.decide(*question("alice", 1, transactional=True), 0)
    assert state.decide(*question("alice", 1, transactional=True), 0).decisions == ()
    assert len(state.decide(*question("alice", 1, 2), 0).decisions) == 2
    state.hand_over(0)
    state.end_restoring()
    known = [
        [state.table.remembers("alice", producer_id, 0, transactional=use) for use in (False, True)]
        for producer_id in (1, 2)
    ]
    assert known == [[True, True], [True, False]]


# Tokens


def _others_pass(make: StateClass) -> int:
    """Count the ids of an enforced user that pass beside an observed one and one in transactions."""
    observed = UserQuota(mode=Mode.OBSERVE)
    quotas = enforcing(
        None, cluster_rate_milli=50_000, users={"loud": observed, "exempt": UserQuota(exempt=True)}
    )
    world = world_of(quotas, make)
    for number in range(200):
        world.judge(world.connect("loud"), batch(number))
        world.judge(world.connect("exempt"), batch(number))
        world.judge(world.connect("txn"), batch(number), transactional=True)
    verdicts = [world.judge(world.connect("alice"), batch(number)) for number in range(60)]
    return sum(isinstance(verdict, Forward) for verdict in verdicts)


@rule("Observe mode leaves no debt and spends no token of the cluster.", "cost")
def test_who_is_never_refused_leaves_the_clusters_tokens_to_the_others() -> None:
    assert _others_pass(ProducerIdQuota) == 51
    assert _others_pass(ObservedSpends) < 2


def _idempotent_passes(make: StateClass) -> int:
    """Count a user's idempotent ids that pass in an hour, beside a new transactional one every 30 s."""
    world = world_of(enforcing(100), make)
    world.spend(101)
    client, passed, waiting = world.connect(), 0, 5_000
    for number in range(1_200):
        world.now_ms = number * 3_000
        if number % 10 == 0:
            world.judge(world.connect(), batch(10_000 + number), transactional=True)
        if isinstance(world.judge(client, batch(waiting)), Forward):
            passed, waiting = passed + 1, waiting + 1
    return passed


def test_new_transactional_ids_do_not_starve_the_idempotent_ones() -> None:
    assert _idempotent_passes(ProducerIdQuota) >= 95
    assert _idempotent_passes(ObservedSpends) == 0


def test_what_enforcing_would_refuse_is_still_counted() -> None:
    world = World(enforcing(3, users={"loud": UserQuota(mode=Mode.OBSERVE)}, cluster_rate_milli=10_000))

    def would_refuse(user: str, first: int, *, transactional: bool) -> list[bool]:
        verdicts = [
            world.judge(world.connect(user), batch(producer_id), transactional=transactional)
            for producer_id in range(first, first + 6)
        ]
        return [verdict.decisions[0].would_refuse for verdict in verdicts if isinstance(verdict, Forward)]

    assert would_refuse("alice", 0, transactional=True) == [False] * 4 + [True] * 2
    assert would_refuse("loud", 0, transactional=False) == [False] * 4 + [True] * 2
    assert would_refuse("erin", 0, transactional=True)[-1] is True  # 18 ids, and 10 for the whole cluster
    assert isinstance(world.judge(world.connect("alice"), batch(100)), Forward)


def test_what_is_observed_elsewhere_spends_nothing_of_the_cluster() -> None:
    observed = {"loud": UserQuota(mode=Mode.OBSERVE)}
    state = ProducerIdQuota(enforcing(100, users=observed, cluster_rate_milli=50_000), seeds(), 0)
    for producer_id in range(50):
        state.admitted_elsewhere("loud", producer_id, 0, Reason.OBSERVE)
        state.admitted_elsewhere("alice", producer_id, 0, Reason.OBSERVE, transactional=True)
    assert state.table.cluster is not None
    assert state.table.cluster.wait_ms(50, 0) == 0
    assert (state.status("loud", 0).tokens, state.status("alice", 0).tokens) == (50, 100)


def test_rehearsed_balances_follow_the_rate() -> None:
    state = ProducerIdQuota(enforcing(100, cluster_rate_milli=50_000), seeds(), 0)
    for producer_id in range(25):
        state.decide(*question("alice", producer_id, transactional=True), 0)
    state.set_quotas(enforcing(200, cluster_rate_milli=100_000), 0)
    live = state.table.live("alice", 0)
    own, cluster = state.table.observed_buckets(live, 0)
    assert own is not None
    assert cluster is not None
    assert (own.units(0), cluster.units(0)) == (150 * own.token_units, 50 * own.token_units)
    assert own.token_units == HOUR_MS * 1_000
