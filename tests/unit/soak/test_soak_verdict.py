"""The verdict on a soak: what grows is caught by the statistic that lets pass what does not."""

import random

import pytest

from tests.soak.plan import REMEMBERS
from tests.soak.sampling import Sample
from tests.soak.verdict import after_warm_up, growths

TWO_HOURS_S = 7_200
EVERY_S = 15


def samples(*, leak_mb_per_h: float = 0.0, descriptors_per_h: float = 0.0, seed: int = 1) -> list[Sample]:
    """Two hours with a warm-up that grows by 30 MB, and clients that come and go."""
    dice = random.Random(seed)
    found = []
    for seconds in range(EVERY_S, TWO_HOURS_S + 1, EVERY_S):
        hours, warm = seconds / 3600, min(1.0, seconds / TWO_HOURS_S * REMEMBERS)
        late = 10 * seconds
        rss_mb = 230 + 30 * warm + dice.gauss(0, 0.5) + leak_mb_per_h * hours
        found.append(
            Sample(
                seconds=seconds,
                rss_mb=rss_mb,
                rss_mb_each=f"60.0 {rss_mb - 100:.1f} 40.0",
                descriptors=90 + dice.randint(-3, 3) + int(descriptors_per_h * hours),
                threads=12,
                tasks=40 + dice.randint(-4, 4),
                processes=4,
                connections=20,
                late_ticks=late,
                late_busy_s=late * 0.001,
                late_no_core_s=late * 0.0005,
                requests=20 * seconds,
                refused=seconds,
                ids_admitted=seconds,
                gateway_cpu_s=seconds * 0.02,
                all_cpu_s=seconds * 0.1,
            )
        )
    return found


def grown(found: list[Sample]) -> set[str]:
    return {one.quantity for one in growths(found) if not one.is_good}


def test_a_gateway_that_only_warms_up_is_good() -> None:
    assert grown(samples()) == set()


@pytest.mark.parametrize("leak_mb_per_h", [3.0, 30.0])
def test_a_leak_is_caught(leak_mb_per_h: float) -> None:
    (rss,) = (one for one in growths(samples(leak_mb_per_h=leak_mb_per_h)) if not one.is_good)
    assert rss.quantity == "rss_mb"
    assert rss.trend.slope == pytest.approx(leak_mb_per_h, rel=0.3)
    assert "GROWS" in str(rss)


def test_descriptors_that_are_not_closed_are_caught() -> None:
    assert grown(samples(descriptors_per_h=60)) == {"descriptors"}


def test_the_warm_up_is_left_out() -> None:
    assert after_warm_up(samples())[0].seconds == TWO_HOURS_S / REMEMBERS
    with pytest.raises(ValueError, match="too few"):
        after_warm_up(samples()[:5])
