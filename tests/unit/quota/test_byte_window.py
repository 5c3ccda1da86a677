"""The window of a byte rate: the specification's vectors, and Kafka's own classes written down once more."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pidgate.quota.byte_quota import Window, throttle_ms, window_ms
from tests.unit.quota.kafka_rate import Number, PlainSensor

SAMPLES, SAMPLE_MS = 11, 1_000
Records = list[tuple[int, int]]
"""(milliseconds since the record before, bytes)."""

gaps_ms = st.one_of(
    st.integers(0, 400), st.sampled_from([999, 1_000, 1_001, 10_999, 11_000, 11_001]), st.integers(0, 30_000)
)
records = st.lists(st.tuples(gaps_ms, st.integers(0, 20_000)), min_size=1, max_size=80)


class Held:
    """A window and its bound."""

    def __init__(self, bound: int, samples: int = SAMPLES, sample_ms: int = SAMPLE_MS) -> None:
        self.bound = bound
        self.shape = samples, sample_ms
        self.window = Window(samples, sample_ms)

    def record(self, size_bytes: int, now_ms: int) -> int:
        self.window.record(size_bytes, now_ms)
        over_ms = window_ms(self.window.oldest_ms, now_ms, *self.shape)
        return throttle_ms(self.window.total, over_ms, self.bound)


def test_ten_quiet_seconds_and_a_spike() -> None:
    held = Held(500)

    assert [held.record(400, second * 1_000) for second in range(10)] == [0] * 10
    assert held.record(2_300, 10_500) == 2_100  # 6300 / 10.5 s = 600 B/s
    for second in range(10):
        held.record(400, 12_600 + second * 1_000)
    assert held.record(0, 22_600) == 0  # the spike's sample is gone


@pytest.mark.parametrize(
    ("bound", "size_bytes", "wait_ms"),
    [
        (500, 5_000, 0),  # exactly the bound is no violation
        (500, 5_001, 2),
        (500, 5_500, 1_000),
        (100_000, 10_000_000, 90_000),  # not capped
        (500, 0, 0),
    ],
)
@pytest.mark.parametrize("start_ms", [0, 1, 999, 123_456_789])
def test_the_first_record_of_an_empty_window(
    bound: int, size_bytes: int, wait_ms: int, start_ms: int
) -> None:
    assert Held(bound).record(size_bytes, start_ms) == wait_ms


def test_kip_13_example() -> None:
    """Observed 60 bytes over ten seconds, bound 5 bytes a second: wait 2 s."""
    assert throttle_ms(60, 10_000, 5) == 2_000


@pytest.mark.parametrize(
    ("observed", "bound", "over_ms", "wait_ms"),
    [(100, 50, 2_000, 2_000), (55, 50, 1_000, 100), (50, 50, 9_000, 0), (49, 50, 9_000, 0)],
)
def test_kafkas_formula(observed: int, bound: int, over_ms: int, wait_ms: int) -> None:
    """QuotaUtilsTest; without the cap that byte rates do not have."""
    assert throttle_ms(observed * over_ms // 1_000, over_ms, bound) == wait_ms


def test_a_wait_is_rounded_half_up() -> None:
    assert throttle_ms(10_001, 1_000, 2_000) == 4_001  # 4000.5
    assert throttle_ms(10_004, 1_000, 10_000) == 0  # 0.4


@pytest.mark.parametrize("number", [Fraction, float])
@given(records, st.integers(1, 5_000), st.integers(2, 13), st.integers(1, 3_000))
@example([(0, 5_001), (10_999, 1), (1, 1), (11_000, 9_000)], 500, 11, 1_000)
@example([(0, 1), (500, 5_000), (10_500, 1), (500, 6_000)], 500, 11, 1_000)  # forgotten within a sample
def test_every_decision_is_kafkas(
    number: Callable[[int], Number], history: Records, bound: int, samples: int, sample_ms: int
) -> None:
    held, plain = Held(bound, samples, sample_ms), PlainSensor(samples, sample_ms, bound, number)
    now_ms = 0
    for gap_ms, size_bytes in history:
        now_ms += gap_ms
        wait_ms, plain_ms = held.record(size_bytes, now_ms), plain.record(size_bytes, now_ms)
        if number is Fraction:
            assert wait_ms == plain_ms
        else:  # a double may fall on the other side of a half
            assert abs(wait_ms - plain_ms) <= max(1, plain_ms // 10**12)


@given(records)
def test_looking_changes_nothing_and_sees_what_a_record_of_nothing_would(history: Records) -> None:
    looked_at, left_alone = Held(500), Held(500)
    now_ms = 0
    for gap_ms, size_bytes in history:
        for between_ms in (now_ms, now_ms + gap_ms // 2):
            total, oldest_ms = looked_at.window.at(between_ms)
            assert total >= 0
            assert (oldest_ms is None) == (looked_at.window.last_ms <= between_ms - SAMPLES * SAMPLE_MS)
        now_ms += gap_ms
        assert looked_at.record(size_bytes, now_ms) == left_alone.record(size_bytes, now_ms)
        assert looked_at.window.at(now_ms) == (looked_at.window.total, looked_at.window.oldest_ms)


def test_a_time_that_runs_backwards_is_the_last_one_seen() -> None:
    held = Held(500)
    held.record(5_000, 10_000)

    assert held.record(1, 4_000) == 2
    assert held.window.last_ms == 10_000
