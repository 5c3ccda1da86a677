"""Several gateways that tell each other what they admit: one id, one token in each account; no debt without end."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.quota.decisions import Reason
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, UserQuota
from tests.support.questions import is_refused, question
from tests.support.rules import rule
from tests.unit.quota.histories import check_fleet_remembers, check_fleet_tokens
from tests.unit.quota.world import HOUR_MS, enforcing, seeds

CHARGED = (Reason.FIRST_SEEN, Reason.QUEUE, Reason.OBSERVE, Reason.RESTORING)
UNCHARGED = [reason for reason in Reason if reason not in CHARGED]


def gateway(**quotas: object) -> ProducerIdQuota:
    return ProducerIdQuota(enforcing(100, **quotas), seeds(), 0)  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_gateway_takes_for_new_what_another_has_used(rng: Random) -> None:
    check_fleet_remembers(rng, ProducerIdQuota)


@rule("An id admitted by another gateway is charged here once; a refresh there is free.", "fleet")
@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False))
def test_each_id_is_charged_once_in_each_account(rng: Random) -> None:
    check_fleet_tokens(rng, ProducerIdQuota)


def test_six_gateways_charge_one_id_once_each() -> None:
    """One producer writes to six brokers at once, each behind its own gateway."""
    fleet = [ProducerIdQuota(enforcing(100), seeds(number), 0) for number in range(10, 16)]
    answers = [state.decide(*question("alice", 7), 0) for state in fleet]
    for state in fleet:
        for answer in answers:
            state.admitted_elsewhere("alice", 7, 0, answer.decisions[0].reason)
    assert [state.status("alice", 0).tokens for state in fleet] == [99] * 6


@pytest.mark.parametrize("reason", [Reason.FIRST_SEEN, Reason.QUEUE])
def test_what_was_charged_elsewhere_is_charged_here_and_to_the_cluster(reason: Reason) -> None:
    state = gateway(cluster_rate_milli=1_000_000)
    assert state.admitted_elsewhere("alice", 7, 0, reason)
    assert not state.admitted_elsewhere("alice", 7, 0, reason)
    assert state.status("alice", 0).tokens == 99
    cluster = state.restorer.export_cluster_bucket(0)
    assert cluster is not None
    assert cluster.units == 999 * cluster.token_units
    assert not state.decide(*question("alice", 7), 0).decisions


@rule("An id admitted by another gateway is charged here once; a refresh there is free.", "fleet")
@pytest.mark.parametrize("reason", UNCHARGED)
def test_what_cost_nothing_elsewhere_costs_nothing_here(reason: Reason) -> None:
    state = gateway()
    assert state.admitted_elsewhere("alice", 7, 0, reason)
    assert state.table.remembers("alice", 7, 0)
    assert state.status("alice", 0).tokens == 100


def test_who_is_exempt_here_is_never_charged() -> None:
    state = gateway(users={"alice": UserQuota(exempt=True)})
    assert state.admitted_elsewhere("alice", 7, 0, Reason.FIRST_SEEN)
    assert state.status("alice", 0).tokens == 100


@rule("A debt from other gateways is at most one full bucket.", "fleet")
def test_what_others_admit_makes_a_debt_of_one_full_bucket_at_most() -> None:
    """A topic that heals after ten minutes brings everything at once."""
    state = gateway()
    for producer_id in range(10_000):
        state.admitted_elsewhere("alice", producer_id, 0, Reason.FIRST_SEEN)
    assert state.status("alice", 0).tokens == -100
    assert is_refused(state.decide(*question("alice", 20_000), HOUR_MS)) is False


def test_what_others_observe_makes_a_debt_of_one_token_at_most() -> None:
    state = gateway()
    for producer_id in range(10_000):
        state.admitted_elsewhere("alice", producer_id, 0, Reason.OBSERVE)
    assert state.status("alice", 0).tokens == -1


def test_a_small_charge_never_lifts_a_larger_debt() -> None:
    state = gateway()
    for producer_id in range(150):
        state.admitted_elsewhere("alice", producer_id, 0, Reason.FIRST_SEEN)
    assert state.status("alice", 0).tokens == -50
    state.admitted_elsewhere("alice", 1_000, 0, Reason.OBSERVE)
    assert state.status("alice", 0).tokens == -50
    state.set_quotas(enforcing(100, mode=Mode.OBSERVE), 0)
    state.decide(*question("alice", 2_000), 0)
    assert state.status("alice", 0).tokens == -50


def test_a_bucket_of_less_than_one_token_may_owe_one() -> None:
    state = ProducerIdQuota(enforcing(0.25), seeds(), 0)
    state.admitted_elsewhere("alice", 1, 0, Reason.FIRST_SEEN)
    assert state.status("alice", 0).tokens == -0.75
    state.admitted_elsewhere("alice", 2, 0, Reason.FIRST_SEEN)
    assert state.status("alice", 0).tokens == -1
