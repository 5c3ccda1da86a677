"""What the demo's quotas are and let in."""

from fractions import Fraction

import pytest

from tools.sandbox.demo.plan import ALICE, CAROL, MALLORY, USERS, Plan


def test_a_full_bucket_lets_in_a_window_and_one() -> None:
    assert Plan(quota=Fraction(100)).admitted_at_most(MALLORY, 0) == 101


def test_without_a_quota_there_is_no_bound_for_anybody() -> None:
    plan = Plan(quota=None)

    assert {plan.admitted_at_most(user, 10) for user in USERS} == {None}
    assert plan.quotas() == {"mode": "observe"}


def test_the_quota_is_mallorys_alone() -> None:
    few, many = Plan(quota=Fraction(5)), Plan(quota=Fraction(500))

    assert few.rate_of(ALICE) == many.rate_of(ALICE)
    assert few.rate_of(CAROL) == many.rate_of(CAROL)
    assert [few.rate_of(MALLORY), many.rate_of(MALLORY)] == [Fraction(5), Fraction(500)]


@pytest.mark.parametrize("direct_s", [0.0, 11.0, 55.0])
def test_the_gateways_half_is_always_the_longer_one(direct_s: float) -> None:
    assert Plan().through_s(direct_s) > direct_s
