"""What the demo's quotas are and let in."""

from fractions import Fraction

import pytest

from tools.sandbox.demo.plan import ALICE, CAROL, MALLORY, USERS, Plan


def test_a_full_bucket_lets_in_a_window_and_one() -> None:
    assert Plan(quota=Fraction(100)).admitted_at_most(MALLORY, 0) == 101


def test_refill_is_counted_in() -> None:
    plan = Plan(quota=Fraction(100))

    assert [plan.admitted_at_most(MALLORY, seconds) for seconds in (35.9, 36, 72)] == [101, 102, 103]


def test_a_quota_of_zero_lets_nobody_in() -> None:
    assert Plan(quota=Fraction(0)).admitted_at_most(MALLORY, 3600) == 0


def test_without_a_quota_there_is_no_bound_for_anybody() -> None:
    plan = Plan(quota=None)

    assert {plan.admitted_at_most(user, 10) for user in USERS} == {None}
    assert plan.quotas() == {"mode": "observe"}


def test_the_quota_is_mallorys_alone() -> None:
    few, many = Plan(quota=Fraction(5)), Plan(quota=Fraction(500))

    assert few.rate_of(ALICE) == many.rate_of(ALICE)
    assert few.rate_of(CAROL) == many.rate_of(CAROL)
    assert [few.rate_of(MALLORY), many.rate_of(MALLORY)] == [Fraction(5), Fraction(500)]


def test_rates_are_written_as_people_write_them() -> None:
    users = Plan(quota=Fraction("2.5")).quotas()["users"]

    assert users[MALLORY] == {"producer_ids_rate": 2.5}
    assert repr(users[ALICE]["producer_ids_rate"]) == "20"
    assert set(users) == set(USERS)


@pytest.mark.parametrize("direct_s", [0.0, 11.0, 55.0])
def test_the_gateways_half_is_always_the_longer_one(direct_s: float) -> None:
    assert Plan().through_s(direct_s) > direct_s


@pytest.mark.parametrize(("rogues", "threads"), [(1, 32), (3, 11), (4, 8), (9, 8)])
def test_few_rogues_work_harder(rogues: int, threads: int) -> None:
    assert Plan(rogues=rogues).threads == threads
