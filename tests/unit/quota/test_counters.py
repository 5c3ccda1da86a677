"""Samples over time, and what is counted of a decision."""

from __future__ import annotations

import pytest

from pidgate.quota.counters import SAMPLE_MS, Samples, UserCounters
from pidgate.quota.decisions import Decision, Reason


def admitted(
    reason: Reason = Reason.FIRST_SEEN, *, waited_ms: int | None = None, would_refuse: bool = False
) -> Decision:
    return Decision(
        "alice", 1, 0, False, b"t", 0, 0, 1, True, reason, waited_ms=waited_ms, would_refuse=would_refuse
    )


def test_a_rate_is_over_this_sample_and_the_one_before() -> None:
    samples = Samples()
    for _ in range(60):
        samples.record(1, 0)
    assert samples.per_second(0) == pytest.approx(2.0)
    assert samples.per_second(SAMPLE_MS) == pytest.approx(2.0)
    assert samples.per_second(2 * SAMPLE_MS - 1) == pytest.approx(1.0, rel=0.01)
    assert samples.per_second(2 * SAMPLE_MS) == 0


def test_a_mean_is_of_what_was_recorded() -> None:
    samples = Samples()
    assert samples.mean(0) == 0
    samples.record(100, 0)
    samples.record(300, SAMPLE_MS)
    assert samples.mean(SAMPLE_MS) == 200
    assert samples.mean(2 * SAMPLE_MS) == 300
    assert samples.mean(9 * SAMPLE_MS) == 0


def test_waits_are_counted_by_their_upper_bound() -> None:
    counters = UserCounters()
    for waited_ms in (500, 501, 36_000, 10**9):
        counters.count_admission(admitted(Reason.QUEUE, waited_ms=waited_ms), 0)
    assert counters.waited_ms_buckets == {500: 1, 1_000: 1, 60_000: 1, 86_400_000: 1}
    assert counters.waited_ms_sum == 10**9 + 37_001


def test_a_refresh_is_no_new_id() -> None:
    counters = UserCounters()
    counters.count_admission(admitted(Reason.REFRESH, waited_ms=5), 0)
    assert counters.admitted == {Reason.REFRESH: 1}
    assert counters.new_ids.per_second(0) == 0
    assert counters.waited_ms_buckets == {}
    counters.count_admission(admitted(Reason.OBSERVE, would_refuse=True), 0)
    assert counters.would_refuse == 1
    assert counters.new_ids.per_second(0) > 0
