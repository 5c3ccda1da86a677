"""The strict bucket, in integers: the specification's vector, bounds over any window, changes of the rate."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.quota.token_bucket import TokenBucket
from tests.support.rules import rule

HOUR_MS = 3_600_000


def hundred_per_hour(now_ms: int = 0) -> TokenBucket:
    return TokenBucket(100_000, HOUR_MS, Fraction(1), now_ms)


def admit(bucket: TokenBucket, now_ms: int) -> bool:
    if bucket.wait_ms(0, now_ms):
        return False
    bucket.charge(now_ms)
    return True


def test_vector_hundred_and_one_at_once_then_one_every_36_seconds() -> None:
    bucket = hundred_per_hour()
    assert [admit(bucket, 0) for _ in range(102)] == [True] * 101 + [False]
    assert bucket.units(0) == -bucket.token_units
    assert bucket.wait_ms(0, 0) == 36_000
    assert bucket.wait_ms(0, 35_999) == 1
    assert bucket.wait_ms(0, 36_000) == 0
    assert admit(bucket, 36_000)
    assert not admit(bucket, 36_000)


def test_the_wait_for_a_place_is_rounded_up_to_a_millisecond() -> None:
    bucket = TokenBucket(7_000, 1_000, Fraction(1), 0)
    bucket.charge(0)
    assert bucket.wait_ms(6, 0) == 0
    assert bucket.wait_ms(7, 0) == 143  # 1000 / 7 = 142.86


def test_refilling_stops_at_the_capacity_and_time_does_not_run_backwards() -> None:
    bucket = hundred_per_hour(now_ms=1_000)
    assert bucket.is_full(1_000)
    bucket.charge(1_000)
    assert not bucket.is_full(500)
    assert bucket.units(500) == 99 * bucket.token_units
    assert bucket.units(10 * HOUR_MS) == bucket.capacity_units


def test_observing_makes_no_debt_of_more_than_one() -> None:
    bucket = hundred_per_hour()
    for _ in range(500):
        bucket.charge_floored(0)
    assert bucket.units(0) == -bucket.token_units
    assert bucket.wait_ms(0, 0) == 36_000


def test_a_rate_below_one_admits_one_id_after_another() -> None:
    bucket = TokenBucket(500, HOUR_MS, Fraction(1), 0)
    assert admit(bucket, 0)
    assert bucket.wait_ms(0, 0) == HOUR_MS  # half a token was there, half a token an hour
    assert admit(bucket, HOUR_MS)


def test_a_change_keeps_the_fraction_of_a_balance() -> None:
    bucket = hundred_per_hour()
    for _ in range(75):
        bucket.charge(0)
    bucket.reshape(1_000_000, HOUR_MS, Fraction(1), 0)
    assert bucket.units(0) == 250 * bucket.token_units
    bucket.reshape(1_000_000, 60_000, Fraction(2), 0)
    assert bucket.units(0) == 500 * bucket.token_units
    assert bucket.token_units == 60_000_000


def test_a_raised_rate_does_not_multiply_a_debt() -> None:
    bucket = TokenBucket(1_000, HOUR_MS, Fraction(1), 0)
    bucket.charge(0)
    bucket.charge(0)
    assert bucket.wait_ms(0, 0) == HOUR_MS
    bucket.reshape(3_600_000, HOUR_MS, Fraction(1), 0)
    assert bucket.wait_ms(0, 0) == 1_000


def test_a_rate_of_zero_has_no_bucket() -> None:
    with pytest.raises(ValueError, match="above 0"):
        TokenBucket(0, HOUR_MS, Fraction(1), 0)


@rule("A bucket admits its capacity, its refill and one more.", "cost")
@given(
    rate_milli=st.integers(1, 50_000),
    window_ms=st.integers(1, 100_000),
    burst=st.fractions(Fraction(1, 10), 5, max_denominator=10),
    steps=st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 30)), max_size=40),
)
def test_no_window_admits_more_than_burst_and_rate_and_one(
    rate_milli: int, window_ms: int, burst: Fraction, steps: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket(rate_milli, window_ms, burst, 0)
    admitted: list[int] = []
    now_ms = 0
    for elapsed_ms, attempts in steps:
        now_ms += elapsed_ms
        admitted += [now_ms for _ in range(attempts) if admit(bucket, now_ms)]
    most = (1 + burst) * Fraction(rate_milli, 1000) + 1
    for start_ms in set(admitted):
        assert sum(start_ms <= at_ms <= start_ms + window_ms for at_ms in admitted) <= most


@given(
    charges=st.lists(st.integers(0, 10_000), max_size=20),
    looks=st.lists(st.integers(0, 10_000), max_size=20),
)
def test_looking_changes_nothing(charges: list[int], looks: list[int]) -> None:
    """A replay of the charges alone gives the same balance, exactly."""
    looked_at, replayed = hundred_per_hour(), hundred_per_hour()
    events = sorted([(at_ms, True) for at_ms in charges] + [(at_ms, False) for at_ms in looks])
    for at_ms, charged in events:
        if charged:
            looked_at.charge(at_ms)
            replayed.charge(at_ms)
        else:
            looked_at.wait_ms(3, at_ms)
    assert looked_at.units(20_000) == replayed.units(20_000)
