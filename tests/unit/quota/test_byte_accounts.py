"""Debts of byte accounts: what is left of them, who waits for them, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.quota.byte_quota import IDLE_MS, LONGEST_TOLD_MS, ByteBucket, ByteQuota, ClientSensors, Kind
from pidgate.quota.settings import ByteEntity, ByteQuotas, ByteRates, Mode, Quotas, QuotasHolder, UserQuota
from tests.support.bounds import examples
from tests.support.rules import rule

RATE = 1_000
WINDOW_BYTES = 10 * RATE


def quotas(rate: int | None = RATE, *, alice: UserQuota | None = None) -> Quotas:
    rates: dict[ByteEntity, ByteRates] = {("alice", None): ByteRates(rate)} if rate is not None else {}
    users = {} if alice is None else {"alice": alice}
    return Quotas(mode=Mode.ENFORCE, users=users, bytes=ByteQuotas(rates=rates))


def account(rate: int = RATE) -> ByteBucket:
    bucket = ByteBucket(Kind.PRODUCE, ("alice", None), ByteQuotas(), 0)
    bucket.set_rate(rate, 0)
    return bucket


def sensors_of(quota: ByteQuota, now_ms: int = 0) -> ClientSensors:
    found = quota.sensors(Kind.PRODUCE, "alice", "app", now_ms)
    assert found is not None
    return found


class Waits:
    """A connection that is never woken here."""

    def wake(self) -> None:
        raise NotImplementedError

    def await_turn(self, who: object, go_on: Callable[[], None]) -> None:
        raise NotImplementedError


def test_a_debt_outlives_the_window_that_it_came_from() -> None:
    bucket = account()
    assert bucket.record(990_000 + WINDOW_BYTES, 0) == 990_000
    assert bucket.wait_ms(20_000) == 970_000
    assert bucket.record(1_000, 20_000) == 971_000
    assert bucket.wait_ms(991_000) == 0


def test_what_is_recorded_without_a_debt_is_what_kafka_computes() -> None:
    """KIP-13 and Kafka's ClientQuotaManagerTest: 500 bytes a second, 400 in each second, then 2,300."""
    bucket = account(500)
    assert [bucket.record(400, second * 1_000) for second in range(10)] == [0] * 10
    assert bucket.record(2_300, 10_500) == 2_100


@pytest.mark.parametrize(
    ("size_bytes", "wait_ms"), [(5_000, 0), (5_001, 2), (5_500, 1_000), (50_000, 90_000)]
)
def test_a_first_record_above_the_window(size_bytes: int, wait_ms: int) -> None:
    assert account(500).record(size_bytes, 0) == wait_ms


def test_a_client_is_told_30_s_at_most_and_asks_again_for_the_rest() -> None:
    quota = ByteQuota(QuotasHolder(quotas()))
    sensors = sensors_of(quota)
    assert sensors.record(100_000 + WINDOW_BYTES, 0) == LONGEST_TOLD_MS
    assert sensors.told_ms(30_000) == LONGEST_TOLD_MS
    assert sensors.told_ms(90_000) == 10_000
    (row,) = quota.snapshots(0)
    assert row.throttle_time_ms == LONGEST_TOLD_MS


def test_bytes_that_are_not_charged_leave_the_debt_alone() -> None:
    """Those of a user that is observed or exempt, in a bucket that others share."""
    bucket = account()
    bucket.record(WINDOW_BYTES + 5_000, 0)
    assert bucket.record(1_000_000, 0, is_charged=False) > 0
    assert bucket.wait_ms(0) == 5_000


RECORDS = st.lists(
    st.tuples(
        st.integers(0, 20_000),
        st.integers(1, 50_000),
        st.booleans(),
        st.sampled_from([None, 10, RATE, 5_000]),
    ),
    min_size=1,
    max_size=20,
)
"""Milliseconds before it, bytes, whether they are charged, and a rate that is set before."""


@rule(
    "A byte debt is paid at its rate whatever was recorded, so no wait is longer than told.",
    "mutes",
)
@settings(max_examples=examples(300))
@given(records=RECORDS)
def test_a_debt_is_paid_when_its_wait_is_over(records: list[tuple[int, int, bool, int | None]]) -> None:
    bucket, now_ms = account(), 0
    for wait_ms, nbytes, is_charged, rate in records:
        now_ms += wait_ms
        if rate is not None:
            bucket.set_rate(rate, now_ms)
        bucket.record(nbytes, now_ms, is_charged=is_charged)
        left_ms = bucket.wait_ms(now_ms)
        now_ms += left_ms // 2
        assert bucket.wait_ms(now_ms) <= left_ms - left_ms // 2
    now_ms += bucket.wait_ms(now_ms)
    assert bucket.wait_ms(now_ms) == 0


def test_a_debt_of_what_was_observed_is_paid() -> None:
    """A user over its rate is enforced: its window counts with the first charged record, as at a broker."""
    bucket = account()
    bucket.record(50_000, 0, is_charged=False)
    assert bucket.record(1, 0) == 40_001
    assert [bucket.wait_ms(now_ms) for now_ms in (0, 20_000, 40_000, 40_001)] == [40_001, 20_001, 1, 0]


@rule(
    "A byte debt makes every connection of its account wait, old or new, and nothing but its Produce or Fetch.",
    "mutes",
)
def test_an_account_in_debt_or_with_waiters_is_not_idle() -> None:
    bucket = account(1)
    bucket.record(10 + 2 * IDLE_MS // 1_000, 0)
    assert not bucket.is_idle(IDLE_MS, IDLE_MS)
    assert bucket.is_idle(3 * IDLE_MS, IDLE_MS)
    bucket.waiting[1] = Waits()
    assert not bucket.is_idle(3 * IDLE_MS, IDLE_MS)


def test_one_waiting_connection_passes_one_request_in_its_turn() -> None:
    bucket = account()
    bucket.record(WINDOW_BYTES + 1_000, 0)
    assert not bucket.may_pass(1, 999)
    bucket.waiting = {1: Waits(), 2: Waits()}
    assert not bucket.may_pass(3, 1_000), "it came later"
    bucket.waiting.pop(1)
    bucket.turn = 1
    assert bucket.may_pass(1, 1_000)
    bucket.end_turn()
    assert not bucket.may_pass(1, 1_000), "one request in its turn"
    bucket.waiting.clear()
    assert bucket.may_pass(3, 1_000)


def lower(holder: QuotasHolder) -> None:
    holder.replace(quotas(RATE // 10))


def higher(holder: QuotasHolder) -> None:
    holder.replace(quotas(RATE * 1_000))


def remove(holder: QuotasHolder) -> None:
    holder.replace(quotas(None))


def exempt(holder: QuotasHolder) -> None:
    holder.replace(quotas(alice=UserQuota(exempt_from_bytes=True)))


def observe(holder: QuotasHolder) -> None:
    holder.replace(quotas(alice=UserQuota(mode=Mode.OBSERVE)))


@pytest.mark.parametrize(
    ("change", "is_served"), [(lower, False), (higher, True), (remove, True), (exempt, True), (observe, True)]
)
def test_a_change_of_quotas_is_in_force_for_those_who_wait(
    change: Callable[[QuotasHolder], None], is_served: bool
) -> None:
    holder = QuotasHolder(quotas())
    quota = ByteQuota(holder)
    sensors_of(quota).record(990_000 + WINDOW_BYTES, 0)
    change(holder)
    quota.follow_quotas(10)
    after = quota.sensors(Kind.PRODUCE, "alice", "app", 10)
    waits = after is not None and after.throttles and after.bucket(10).wait_ms(10) > 0
    assert waits is not is_served


def test_what_a_low_rate_has_paid_stays_paid_at_that_rate() -> None:
    holder = QuotasHolder(quotas())
    quota = ByteQuota(holder)
    sensors_of(quota).record(100_000 + WINDOW_BYTES, 0)
    holder.replace(quotas(RATE // 10))
    quota.follow_quotas(10_000)
    assert sensors_of(quota, 10_000).bucket(10_000).wait_ms(10_000) == 900_000


class Greedy:
    """Connections that send as soon as the account lets them, each new or one of a few."""

    def __init__(self, bucket: ByteBucket, *, are_new: bool, connections: int) -> None:
        self.bucket, self.passed = bucket, 0
        self._ids = count() if are_new else iter([n % connections for n in range(100_000)])

    def send_until(self, until_ms: int, sizes: list[int]) -> None:
        now_ms, number = 0, 0
        while now_ms <= until_ms:
            connection_id = next(self._ids)
            if self.bucket.may_pass(connection_id, now_ms):
                self.bucket.end_turn()
                size = sizes[number % len(sizes)]
                number += 1
                self.passed += size
                self.bucket.record(size, now_ms)
                now_ms += 1
            else:
                now_ms += max(1, self.bucket.wait_ms(now_ms))


@rule(
    "A byte debt makes every connection of its account wait, old or new, and nothing but its Produce or Fetch.",
    "mutes",
)
@settings(max_examples=examples(60), deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300_000), min_size=1, max_size=8),
    are_new=st.booleans(),
    connections=st.integers(1, 50),
)
def test_the_rate_holds_over_all_connections(sizes: list[int], are_new: bool, connections: int) -> None:
    seconds = 60
    greedy = Greedy(account(), are_new=are_new, connections=connections)
    greedy.send_until(seconds * 1_000, sizes)
    assert greedy.passed <= 1.1 * RATE * seconds + WINDOW_BYTES + max(sizes)


@rule("Lanes pass at most 50 ms of a byte rate before it is recorded.", "connections")
@given(st.lists(st.booleans(), max_size=40))
def test_all_leases_together_are_a_part_of_the_rate(takes: list[bool]) -> None:
    bucket = account(1_000_000)
    leases = [bucket.lease(0)]
    assert leases == [25_000], "one gets half of it"
    for take in takes:
        if take:
            leases.append(bucket.lease(0))
        elif leases:
            bucket.end_lease(leases.pop())
        assert sum(leases) == bucket.leased_bytes <= 50_000


def test_nothing_is_leased_while_there_is_a_debt_or_somebody_waits() -> None:
    bucket = account()
    bucket.record(2 * WINDOW_BYTES, 0)
    assert bucket.lease(0) == 0
    assert bucket.lease(60_000) > 0
    bucket.waiting[1] = Waits()
    assert bucket.lease(60_000) == 0
