"""producer_states_rate: a pair of id and partition is charged and never refused; its debt meets the next new id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidgate.quota.changes import Command, CommandType
from pidgate.quota.decisions import Bound, Client, Close, Forward, Reason, error_message
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support.rules import rule
from tests.unit.quota.world import HOUR_MS, World, batch, enforcing

RATE = 100
NO_BROKER: tuple[int, ...] = ()


def quotas(
    rate: int | None = RATE, *, ids: int | None = None, mode: Mode = Mode.ENFORCE, exempt: bool = False
) -> Quotas:
    found = enforcing(ids, mode=mode)
    of_states = None if rate is None else rate * 1_000
    return replace(found, default=replace(found.default, producer_states_rate_milli=of_states, exempt=exempt))


def produce(world: World, client: Client, producer_id: int, partition: int = 0) -> bool:
    """Produce one batch, which is noted as the gateway notes it; return whether it was forwarded."""
    verdict = world.judge(client, batch(producer_id, partition=partition))
    assert not isinstance(verdict, Close)
    if isinstance(verdict, Forward):
        note(world, client, producer_id, partition)
    return isinstance(verdict, Forward)


def note(world: World, client: Client, producer_id: int, partition: int) -> None:
    world.admission.state.note_pair(client, producer_id, b"t", partition, NO_BROKER, world.now_ms)


def tokens(world: World, user: str = "alice") -> float | None:
    return world.admission.state.status(user, world.now_ms).states_tokens


@rule(
    "A known id may use any partition: its new pairs are charged, and new ids of its user wait for the debt.",
    "cost",
)
def test_a_known_id_uses_any_partition_and_the_debt_meets_the_next_new_id() -> None:
    world = World(quotas())
    client = world.connect()
    assert all(produce(world, client, 1, partition) for partition in range(3 * RATE))
    assert tokens(world) == pytest.approx(-RATE), "a debt of one full bucket at most"
    refusal = world.refusal(client, batch(2))
    assert (refusal.bound, refusal.reason, refusal.rate_milli) == (
        Bound.STATES,
        Reason.FIRST_SEEN,
        RATE * 1_000,
    )
    assert "producer_states_rate quota of user alice exceeded (100 per 1h)" in error_message(refusal)
    assert produce(world, client, 1, 3 * RATE + 1), "the known id goes on"
    world.now_ms += HOUR_MS + HOUR_MS // RATE
    assert produce(world, client, 2)


def test_a_pair_costs_one_token_and_costs_nothing_while_it_is_remembered() -> None:
    world = World(quotas())
    client = world.connect()
    for _ in range(3):
        for partition in range(10):
            produce(world, client, 1, partition)
        assert tokens(world) == pytest.approx(RATE - 10)
    note(world, client, 2, 0)
    assert tokens(world) == pytest.approx(RATE - 11), "the same partition of another id"


def test_below_its_rates_nobody_waits_and_both_rates_hold() -> None:
    world = World(quotas(ids=10))
    client = world.connect()
    assert all(produce(world, client, producer_id, 0) for producer_id in range(11))
    assert world.refusal(client, batch(11)).bound is Bound.USER
    assert tokens(world) == pytest.approx(RATE - 11)


def test_observed_nothing_is_refused_and_no_debt_is_left_to_enforcing() -> None:
    world = World(quotas(mode=Mode.OBSERVE))
    client = world.connect()
    assert all(produce(world, client, 1, partition) for partition in range(3 * RATE))
    verdict = world.judge(client, batch(2))
    assert isinstance(verdict, Forward)
    assert verdict.decisions[0].would_refuse
    note(world, client, 2, 0)
    assert tokens(world) == pytest.approx(-1)


def test_exempt_and_without_a_rate_nothing_is_charged() -> None:
    exempt = World(quotas(exempt=True))
    for partition in range(2 * RATE):
        produce(exempt, exempt.connect(), 1, partition)
    assert tokens(exempt) in (None, RATE)
    without = World(quotas(None, ids=100))
    produce(without, without.connect(), 1)
    assert tokens(without) is None
    assert without.admission.state.table.find("alice").pairs is None  # type: ignore[union-attr]


def test_pairs_of_client_ids_make_one_debt_of_their_user() -> None:
    part = UserQuota(
        producer_ids_rate_milli=100_000,
        client_rates_milli={"etl": 50_000},
        producer_states_rate_milli=RATE * 1_000,
    )
    world = World(replace(quotas(None), users={"alice": part}))
    etl, other = world.connect(client_id="etl"), world.connect(client_id="app")
    assert produce(world, other, 900)
    assert all(produce(world, etl, 1, partition) for partition in range(2 * RATE))
    assert world.refusal(etl, batch(1_000)).bound is Bound.STATES
    assert world.refusal(other, batch(1_001)).bound is Bound.STATES


def test_a_refill_ends_the_debt_and_a_removed_rate_too() -> None:
    for lift in ("refill", "remove"):
        world = World(quotas())
        client = world.connect()
        for partition in range(3 * RATE):
            produce(world, client, 1, partition)
        world.refusal(client, batch(2))
        if lift == "refill":
            world.admission.state.apply(Command(type=CommandType.REFILL, user="alice"), world.now_ms)
        else:
            world.admission.set_quotas(quotas(None), world.now_ms)
        world.now_ms += 200
        assert isinstance(world.judge(world.connect(), batch(3)), Forward), lift


def test_after_a_start_all_pairs_look_new_and_none_is_charged_for_a_while() -> None:
    world = World(quotas())
    world.admission.state.pairs_free_until_ms = HOUR_MS
    client = world.connect()
    for partition in range(3 * RATE):
        produce(world, client, 1, partition)
    assert tokens(world) == RATE
    world.now_ms = HOUR_MS
    for partition in range(3 * RATE):
        produce(world, client, 1, partition)
    assert tokens(world) == RATE, "they are remembered since"


def test_a_rate_of_0_blocks_new_ids() -> None:
    world = World(quotas(0))
    assert world.refusal(world.connect(), batch(1)).reason is Reason.BLOCKED


def test_a_user_without_a_pair_or_a_debt_is_forgotten() -> None:
    world = World(quotas())
    produce(world, world.connect(), 1)
    world.now_ms += 200 * HOUR_MS
    world.admission.sweep(world.now_ms)
    assert world.admission.state.users() == []
