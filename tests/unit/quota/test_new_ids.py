"""InitProducerId without a transactional id: who is given a new id, who is not, and what a crash loop can burn."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pidgate.quota.admission import Admission
from pidgate.quota.decisions import (
    Bound,
    Client,
    Forward,
    Reason,
    Refuse,
)
from pidgate.quota.entities import unidentified
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota
from pidgate.quota.users import BROUGHT_WITHIN_MS
from tests.support.questions import is_refused, question
from tests.support.rules import rule
from tests.unit.quota.world import HOUR_MS, World, batch, enforcing, seeds

StateClass = type[ProducerIdQuota]
LONGEST_MS: Final = 10_000
TOKEN_MS: Final = 36_000
"""At 100 an hour."""


def refusing(rate: int | None = 100, **settings: object) -> Quotas:
    return enforcing(rate, refuse_init=True, **settings)  # type: ignore[arg-type]


def world_of(quotas: Quotas, make: StateClass = ProducerIdQuota) -> World:
    return World(quotas, Admission(quotas, seeds(), 0, state=make(quotas, seeds(), 0)))


def asks(world: World, client: Client | None = None) -> Refuse | None:
    """None: a broker is asked."""
    verdict = world.admission.judge_new_id(client or world.connect(), world.now_ms)
    return verdict if isinstance(verdict, Refuse) else None


# ---- the rules ---------------------------------------------------------------------------------------------


def _refused_while_tokens_are_below_zero(make: StateClass) -> None:
    world = world_of(refusing(), make)
    world.spend(100)
    assert asks(world) is None, "0 tokens: one more may come"
    world.spend(1, first=5)
    refused = asks(world)
    assert refused is not None
    assert (refused.throttle_time_ms, refused.reason, refused.bound) == (
        LONGEST_MS,
        Reason.FIRST_SEEN,
        Bound.USER,
    )
    world.now_ms = TOKEN_MS - 1_234
    refused = asks(world)
    assert refused is not None
    assert refused.throttle_time_ms == 1_234
    world.now_ms = TOKEN_MS - 1
    refused = asks(world)
    assert refused is not None
    assert refused.throttle_time_ms == 100, "less would make clients spin"
    world.now_ms = TOKEN_MS
    assert asks(world) is None


def _asking_costs_nothing(make: StateClass) -> None:
    """Ids that are not brought leave the tokens as they were."""
    world = world_of(refusing(), make)
    for _ in range(30):
        assert [asks(world) is None for _ in range(102)] == [True] * 101 + [False]
        world.now_ms += 5_000
    world.spend(101)


def _who_waits_for_one_token_gets_one_id(make: StateClass) -> None:
    """Ten processes are told the same moment. What the first of them brings is charged a little later."""
    world = world_of(refusing(), make)
    world.spend(101)
    for round_ in range(1, 4):
        world.now_ms = round_ * TOKEN_MS
        assert [asks(world) is None for _ in range(10)] == [True] + [False] * 9
        world.now_ms += 200
        world.spend(1, first=round_)
        assert asks(world) is not None


def _what_was_brought_keeps_no_place(make: StateClass) -> None:
    world = world_of(refusing(3), make)
    for producer_id in range(4):
        assert asks(world) is None
        world.spend(1, first=producer_id)
    assert asks(world) is not None


def _what_another_gateway_charged_was_brought(make: StateClass) -> None:
    """Given here, brought there: its token is not kept any longer."""
    quotas = refusing(1)
    state = make(quotas, seeds(), 0)
    world = World(quotas, Admission(quotas, seeds(), 0, state=state))
    assert [asks(world) is None for _ in range(3)] == [True, True, False]
    state.admitted_elsewhere("alice", 5, 0, Reason.FIRST_SEEN)
    assert asks(world) is not None
    state.admitted_elsewhere("alice", 6, 0, Reason.FIRST_SEEN)
    world.now_ms = HOUR_MS
    assert asks(world) is None


def _a_new_connection_does_not_help(make: StateClass) -> None:
    world = world_of(refusing(), make)
    world.spend(101)
    for _ in range(50):
        world.now_ms += 500
        assert asks(world, world.connect(address="10.0.0.2", client_id="other")) is not None


def _who_waits_goes_first(make: StateClass) -> None:
    """The throttle is that of a place behind those who came back; tokens that are back are enough to pass."""
    world = world_of(refusing(max_throttle_ms=HOUR_MS), make)
    world.spend(101)
    client = world.connect()
    for producer_id in (1, 2):
        world.refusal(client, batch(producer_id))
        world.refusal(client, batch(producer_id))
    assert next(world.admission.user_snapshots(0)).waiting == 2
    refused = asks(world)
    assert refused is not None
    assert refused.throttle_time_ms == 3 * TOKEN_MS
    world.now_ms = TOKEN_MS
    assert asks(world) is None


def _grace_gives(make: StateClass) -> None:
    quotas = refusing(1)
    state = make(quotas, seeds(), 0)
    world = World(quotas, Admission(quotas, seeds(), 0, state=state))
    world.spend(2)
    state.begin_grace(HOUR_MS)
    assert asks(world) is None
    world.spend(10, first=5)
    assert asks(world) is not None, "grace is bounded"


def _blocked_is_blocked(make: StateClass) -> None:
    for quotas, bound in (
        (refusing(0), Bound.USER),
        (refusing(None, cluster_rate_milli=0), Bound.CLUSTER),
    ):
        state = make(quotas, seeds(), 0)
        state.begin_grace(HOUR_MS)
        refused = asks(World(quotas, Admission(quotas, seeds(), 0, state=state)))
        assert refused is not None
        assert (refused.throttle_time_ms, refused.reason, refused.bound) == (
            LONGEST_MS,
            Reason.BLOCKED,
            bound,
        )


def _the_clusters_bucket_counts(make: StateClass) -> None:
    world = world_of(refusing(None, cluster_rate_milli=2_000), make)
    world.spend(3, user="bob")
    refused = asks(world)
    assert refused is not None
    assert (refused.bound, refused.rate_milli) == (Bound.CLUSTER, 2_000)


def _exempt_is_exempt(make: StateClass) -> None:
    world = world_of(refusing(0, users={"alice": UserQuota(0, exempt=True)}), make)
    assert asks(world) is None
    assert [user.inits_would_refuse for user in world.admission.user_snapshots(0)] == [0]


def _observed_is_counted(make: StateClass) -> None:
    world = world_of(refusing(1, mode=Mode.OBSERVE), make)
    world.spend(5)
    assert asks(world) is None
    assert asks(world, world.connect("bob")) is None
    alice, bob = world.admission.user_snapshots(0)
    assert (alice.inits_would_refuse, alice.inits_refused, alice.would_refuse) == (1, 0, 3)
    assert (bob.inits_would_refuse, bob.inits_refused) == (0, 0)


def _who_brings_nothing_is_forgotten(make: StateClass) -> None:
    quotas = refusing(1)
    state = make(quotas, seeds(), 0)
    for number in range(100):
        assert not is_refused(state.decide(*question(f"user-{number}"), 0))
    state.sweep(4_999)
    assert len(state.users()) == 100
    state.sweep(5_000)
    assert state.users() == []


Moves = list[tuple[int, int]]


def _burnt(make: StateClass, lanes: int, moves: Moves, *, refuse: bool = True) -> tuple[int, int, int]:
    """A crash loop of so many processes: (ids that a broker handed out, tokens there were for them, ids that were
    brought late or never).

    A move is (milliseconds to wait, process): it asks for an id, or brings the one that it has, and crashes then.
    """
    quotas = enforcing(3, window_ms=60_000, refuse_init=refuse)
    world = world_of(quotas, make)
    next_id = count(1)
    has: list[tuple[int, int] | None] = [None] * lanes
    late = 0
    for wait_ms, lane in moves:
        world.now_ms += wait_ms
        given = has[lane % lanes]
        if given is not None:
            producer_id, given_ms = given
            world.judge(world.connect(), batch(producer_id))
            late += world.now_ms - given_ms >= BROUGHT_WITHIN_MS
            has[lane % lanes] = None
        elif asks(world) is None:
            has[lane % lanes] = next(next_id), world.now_ms
    late += sum(given is not None for given in has)
    return next(next_id) - 1, 3 + world.now_ms * 3 // 60_000 + 1, late


def _check_burnt(make: StateClass, lanes: int, moves: Moves) -> None:
    """As many as there were tokens, however many processes ask; an id that is not brought frees its token again."""
    burnt, tokens, late = _burnt(make, lanes, moves)
    assert burnt <= tokens + late


def _a_crash_loop_burns_what_its_tokens_buy(make: StateClass) -> None:
    for lanes in (1, 2, 5):
        _check_burnt(make, lanes, [(100, number) for number in range(600)])


RULES: Final[dict[str, Callable[[StateClass], None]]] = {
    "refused while tokens are below zero": _refused_while_tokens_are_below_zero,
    "asking costs nothing": _asking_costs_nothing,
    "a new connection does not help": _a_new_connection_does_not_help,
    "who waits goes first": _who_waits_goes_first,
    "grace": _grace_gives,
    "blocked": _blocked_is_blocked,
    "the cluster's bucket": _the_clusters_bucket_counts,
    "exempt": _exempt_is_exempt,
    "observed": _observed_is_counted,
    "who brings nothing is forgotten": _who_brings_nothing_is_forgotten,
    "one id for one token": _who_waits_for_one_token_gets_one_id,
    "brought then asked again": _what_was_brought_keeps_no_place,
    "brought elsewhere": _what_another_gateway_charged_was_brought,
    "what a crash loop burns": _a_crash_loop_burns_what_its_tokens_buy,
}


@pytest.mark.parametrize("rule", RULES)
def test_the_code_keeps_every_rule(rule: str) -> None:
    RULES[rule](ProducerIdQuota)


@rule("A broker is asked for no more new ids than tokens can pay for.", "cost")
@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 5)), max_size=200))
@example(1, [(0, 0)] * 200)
@example(6, [(0, number) for number in range(200)])
def test_no_crash_loop_burns_more_ids_than_its_tokens_buy(lanes: int, moves: Moves) -> None:
    _check_burnt(ProducerIdQuota, lanes, moves)


def test_without_the_setting_it_burns_one_each_time() -> None:
    moves = [(100, 0)] * 600
    assert _burnt(ProducerIdQuota, 1, moves, refuse=False)[0] == 300
    assert _burnt(ProducerIdQuota, 1, moves)[0] == 3 + 1 + 2, "a full bucket, one into debt, and 3 a minute"


def test_who_gave_up_waiting_makes_nobody_wait_longer() -> None:
    quotas = refusing(1, max_throttle_ms=HOUR_MS)
    state = ProducerIdQuota(quotas, seeds(), 0)
    world = World(quotas, Admission(quotas, seeds(), 0, state=state))
    world.spend(2)
    client = world.connect()
    for _ in range(2):
        world.refusal(client, batch(1))
    world.now_ms = HOUR_MS - 1
    refused = asks(world)
    assert refused is not None
    assert refused.throttle_time_ms == HOUR_MS
    world.now_ms = HOUR_MS + 30_001
    state.admitted_elsewhere("alice", 5, world.now_ms, Reason.FIRST_SEEN)
    refused = asks(world)
    assert refused is not None
    assert refused.throttle_time_ms == HOUR_MS - 30_001


# ---- around it ---------------------------------------------------------------------------------------------


def test_off_nobody_is_asked() -> None:
    world = World(enforcing(0))
    assert isinstance(world.admission.judge_new_id(world.connect(), 0), Forward)
    assert list(world.admission.user_snapshots(0)) == []


def test_refusals_are_counted_beside_those_of_produce_requests() -> None:
    world = world_of(refusing(1))
    world.spend(2)
    for _ in range(3):
        assert asks(world) is not None
    (alice,) = world.admission.user_snapshots(0)
    assert (alice.inits_refused, alice.inits_would_refuse, alice.refused) == (3, 0, {})
    assert alice.throttle_time_ms == LONGEST_MS


def test_whoever_cannot_be_identified_is_refused_like_anybody() -> None:
    world = world_of(refusing(0))
    assert asks(world, world.connect(unidentified("GSSAPI"))) is not None


def test_a_changed_quota_is_in_force_at_once() -> None:
    world = world_of(refusing(1))
    world.spend(2)
    assert asks(world) is not None
    world.admission.set_quotas(refusing(1, mode=Mode.OBSERVE), 0)
    assert asks(world) is None
    world.admission.set_quotas(enforcing(1), 0)
    assert asks(world) is None


def test_while_the_state_is_restored_everybody_is_given_one() -> None:
    quotas = refusing(0)
    state = ProducerIdQuota(quotas, seeds(), 0, is_restored=False)
    assert asks(World(quotas, Admission(quotas, seeds(), 0, state=state))) is None
    state.end_restoring()
    assert asks(World(quotas, Admission(quotas, seeds(), 0, state=state))) is not None


@rule("An error inside the quota code forwards traffic and is counted.", "failures")
def test_when_the_state_fails_a_broker_is_asked() -> None:
    class Broken(ProducerIdQuota):
        def decide(self, *_: object, **__: object) -> NoReturn:
            raise RuntimeError("a bug")

    world = world_of(refusing(1), Broken)
    assert [asks(world) is None for _ in range(12)] == [True] * 10 + [False] * 2
    assert world.admission.fail_open.passed == 10
    (alice,) = world.admission.user_snapshots(0)
    assert (alice.inits_failed_open, alice.inits_refused, alice.inits_would_refuse) == (10, 2, 0)


def test_an_observed_id_takes_its_reserved_token() -> None:
    world = world_of(refusing(1, mode=Mode.OBSERVE))
    assert asks(world) is None
    live = world.admission.state.table.find("alice")
    assert live is not None
    assert live.given_lately(0) == 1
    world.spend(1)
    assert live.given_lately(0) == 0
