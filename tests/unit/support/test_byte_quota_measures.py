"""How a rate is taken: one that comes in bursts, as Kafka's quotas make them, is what it is on average."""

import pytest

from tests.support.byte_quotas import Moment, steady, throttle_ms


def flow(mb_by_second: list[float], repeats: int) -> list[Moment]:
    """Hundred moments in each second."""
    return [
        (1000.0 + second + part / 100, int(mb * 10_000))
        for second, mb in enumerate(mb_by_second * repeats)
        for part in range(100)
    ]


@pytest.mark.parametrize("from_s", [8, 9.5, 11, 13, 14.2, 16])
@pytest.mark.parametrize(
    "shape", [[2.5] * 9 + [0.0] * 2, [22.0] + [0.0] * 10, [4.0] * 5 + [0.3] * 6, [2.4] * 10 + [0.2]]
)
def test_bursts_count_for_what_they_are_wherever_one_begins(shape: list[float], from_s: float) -> None:
    mean = sum(shape) / len(shape) * 1e6
    assert steady(flow(shape, 5), from_s, 22).of_windows == pytest.approx(mean, rel=0.01)


def test_a_tenth_too_much_is_seen() -> None:
    assert steady(flow([2.75] * 8 + [0.0] * 2, 5), 9, 22).of_windows > 2.1e6


def test_kips_example() -> None:
    """KIP-13: at 500 bytes a second 5,500 bytes in a fresh window are a second too many."""
    assert throttle_ms(5_500, 500) == pytest.approx(1_000)
    assert throttle_ms(10_000_000, 100_000) == pytest.approx(90_000)
