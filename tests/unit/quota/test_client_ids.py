"""Client ids with a rate of their own: parts of their user's rate, which all accounts together keep to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidgate.quota.admission import Admission
from pidgate.quota.changes import Action, Change, Command, CommandType, Setting, Target, merged
from pidgate.quota.decisions import Client, Forward, Reason, Refuse, error_message
from pidgate.quota.entities import ANONYMOUS, account_of, resolve, shown
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota, rate_milli
from tests.support.rules import rule
from tests.unit.quota.world import HOUR_MS, World, batch, enforcing, seeds


def shared(rate: int | None = 200, **parts: int) -> Quotas:
    """Quotas of ANONYMOUS, with parts for client ids."""
    rates = {client_id: rate_milli(part) for client_id, part in parts.items()}
    own = UserQuota(None if rate is None else rate_milli(rate), client_rates_milli=rates)
    return enforcing(None, users={ANONYMOUS: own})


def bring(world: World, client: Client, ids: range) -> int:
    """Return how many of these new ids are admitted."""
    return sum(isinstance(world.judge(client, batch(producer_id)), Forward) for producer_id in ids)


def admitted_of(world: World, client_ids: list[str], ids: range) -> int:
    """Return how many new ids are admitted, each from a connection of the next client id."""
    return sum(
        bring(
            world,
            world.connect(ANONYMOUS, client_id=client_ids[place % len(client_ids)]),
            range(number, number + 1),
        )
        for place, number in enumerate(ids)
    )


@rule("A client id with a rate has a part of its user's rate; all other client ids share the rest.", "cost")
def test_a_thousand_client_ids_get_not_one_id_more_than_one() -> None:
    alone, many = World(shared(billing=50)), World(shared(billing=50))
    one = admitted_of(alone, ["rogue"], range(1_000))
    assert one == 151  # the rest of the rate, and one below 0
    assert admitted_of(many, [f"rogue-{number}" for number in range(1_000)], range(1_000)) == one


def test_a_client_id_with_a_rate_is_neither_starved_nor_above_its_part() -> None:
    world = World(shared(billing=50))
    assert admitted_of(world, ["rogue"], range(1_000)) == 151
    assert admitted_of(world, ["billing"], range(1_000, 2_000)) == 51
    world.now_ms = HOUR_MS
    assert admitted_of(world, ["billing"], range(2_000, 3_000)) == 50
    assert admitted_of(world, ["rogue"], range(3_000, 4_000)) == 150


def test_without_parts_every_client_id_shares_the_whole_rate() -> None:
    world = World(shared())
    assert admitted_of(world, ["billing"], range(100)) == 100
    assert admitted_of(world, ["rogue"], range(1_000, 2_000)) == 101


@pytest.mark.parametrize(
    ("rate", "billing", "rest"), [(1_000, 50, 950), (50, 50, 0), (30, 30, 0), (0, 0, 0), (None, 50, None)]
)
def test_the_parts_follow_a_rate_that_is_changed_at_run_time(
    rate: int | None, billing: int, rest: int | None
) -> None:
    value = None if rate is None else rate_milli(rate)
    action = Action.REMOVE if rate is None else Action.SET
    change = Change(target=Target(Setting.PRODUCER_IDS_RATE, ANONYMOUS), action=action, value=value)
    quotas = merged(shared(billing=50), [change], file_wins=False, wall_ms=0)
    rates = [resolve(quotas, account_of(quotas, ANONYMOUS, name)).rate_milli for name in ("billing", "x")]
    assert rates == [billing * 1_000, None if rest is None else rest * 1_000]


def test_parts_above_a_lowered_rate_shrink_alike() -> None:
    quotas = shared(40, billing=60, orders=20)
    parts = [
        resolve(quotas, account_of(quotas, ANONYMOUS, name)).rate_milli for name in ("billing", "orders")
    ]
    assert parts == [30_000, 10_000]


def test_a_part_follows_its_user_in_all_but_the_rate() -> None:
    quotas = shared(billing=50)
    users = {ANONYMOUS: replace(quotas.users[ANONYMOUS], mode=Mode.OBSERVE)}
    world = World(replace(quotas, users=users))
    assert admitted_of(world, ["billing"], range(1_000)) == 1_000


def test_only_the_file_s_exact_client_id_has_a_part_and_no_other_user_s() -> None:
    quotas = shared(billing=50)
    assert account_of(quotas, ANONYMOUS, "billing-1") == ANONYMOUS
    assert account_of(quotas, ANONYMOUS, "") == ANONYMOUS
    assert account_of(quotas, "alice", "billing") == "alice"
    assert shown(account_of(quotas, ANONYMOUS, "billing")) == "ANONYMOUS (client id billing)"


@rule("An id stays known when the file gives its client id a rate, or takes it back.", "cost")
def test_a_running_producer_is_not_new_when_its_client_id_gets_a_rate() -> None:
    world = World(shared())
    clients = [world.connect(ANONYMOUS, client_id="billing") for _ in range(200)]
    for number, client in enumerate(clients):
        assert isinstance(world.judge(client, batch(number)), Forward)
    for quotas in (shared(billing=50), shared()):
        world.admission.set_quotas(quotas, world.now_ms)
        for number, client in enumerate(clients):
            verdict = world.judge(client, batch(number, 1))
            assert verdict == Forward(), (number, verdict)


def test_a_grant_ends_when_a_client_id_gets_a_rate() -> None:
    world = World(shared())
    client = world.connect(ANONYMOUS, client_id="billing")
    world.judge(client, batch(7))
    grant = world.admission.grant(client, 7, 0, [b"t"], False, world.now_ms)
    assert grant is not None
    before = world.admission.grants.everything.number  # type: ignore[attr-defined]
    world.admission.set_quotas(shared(billing=50), world.now_ms)
    assert world.admission.grants.everything.number > before  # type: ignore[attr-defined]


def test_a_refusal_names_the_client_id_and_its_part() -> None:
    world = World(shared(billing=1))
    client = world.connect(ANONYMOUS, client_id="billing")
    bring(world, client, range(2))
    refusal = world.refusal(client, batch(3))
    assert "quota of client id billing of user ANONYMOUS exceeded (1 per 1h)" in error_message(refusal)
    other = world.connect(ANONYMOUS, client_id="other")
    bring(world, other, range(1_000, 1_200))
    assert "quota of user ANONYMOUS exceeded (199 per 1h)" in error_message(world.refusal(other, batch(9)))


def test_a_refused_batch_stays_first_when_its_client_id_gets_a_rate() -> None:
    world = World(shared(1))
    client = world.connect(ANONYMOUS, client_id="billing")
    bring(world, client, range(2))
    world.refusal(client, batch(3))
    world.admission.set_quotas(shared(60, billing=50), world.now_ms)
    assert isinstance(world.judge(client, batch(3, 5)), Refuse)
    assert isinstance(world.judge(client, batch(3)), Forward)


@pytest.mark.parametrize("is_user_first", [False, True])
def test_another_gateway_s_ids_and_a_restored_balance_count_for_their_account(is_user_first: bool) -> None:
    quotas = shared(billing=50)
    billing = account_of(quotas, ANONYMOUS, "billing")
    state = ProducerIdQuota(quotas, seeds(), 0)
    for number in range(20):
        assert state.admitted_elsewhere(billing, number, 0, Reason.FIRST_SEEN)
    assert not state.admitted_elsewhere(ANONYMOUS, 5, 0, Reason.FIRST_SEEN)
    assert (state.status(billing, 0).tokens, state.status(ANONYMOUS, 0).tokens) == (30, 150)

    copy = ProducerIdQuota(quotas, seeds(9_000), 0)
    for saved in sorted(state.restorer.export_users(0), key=lambda saved: saved.user, reverse=is_user_first):
        copy.restorer.import_user(saved, 0)
    assert (copy.status(billing, 0).tokens, copy.status(ANONYMOUS, 0).tokens) == (30, 150)
    world = World(quotas, Admission(quotas, seeds(), 0, state=copy))
    client = world.connect(ANONYMOUS, client_id="billing")
    assert not any(
        verdict.decisions and verdict.decisions[0].reason is Reason.FIRST_SEEN
        for number in range(20)
        if isinstance(verdict := world.judge(client, batch(number)), Forward)
    )


def test_ids_outlive_the_account_and_the_account_the_users_idle_time() -> None:
    world = World(shared(billing=50))
    client = world.connect(ANONYMOUS, client_id="billing")
    bring(world, client, range(51))
    world.now_ms = 2 * HOUR_MS  # the account is full again
    for _ in range(3):
        world.admission.sweep(world.now_ms)
    assert world.admission.state.users() == [ANONYMOUS]
    again = world.connect(ANONYMOUS, client_id="billing")
    assert bring(world, again, range(51)) == 51
    assert world.admission.state.status(ANONYMOUS, world.now_ms).live_ids == 51


def test_a_refill_of_the_user_fills_each_account() -> None:
    world = World(shared(billing=50))
    admitted_of(world, ["rogue"], range(1_000))
    admitted_of(world, ["billing"], range(1_000, 2_000))
    world.admission.state.apply(Command(type=CommandType.REFILL, user=ANONYMOUS), world.now_ms)
    assert admitted_of(world, ["rogue"], range(2_000, 3_000)) == 151
    assert admitted_of(world, ["billing"], range(3_000, 4_000)) == 51


def test_ids_noted_while_restoring_are_charged_to_their_account() -> None:
    quotas = shared(billing=50)
    state = ProducerIdQuota(quotas, seeds(), 0, is_restored=False)
    world = World(quotas, Admission(quotas, seeds(), 0, state=state))
    bring(world, world.connect(ANONYMOUS, client_id="billing"), range(5))
    while state.hand_over(0):
        pass
    state.end_restoring()
    billing = account_of(quotas, ANONYMOUS, "billing")
    assert (state.status(billing, 0).tokens, state.status(ANONYMOUS, 0).tokens) == (45, 150)
