"""The verdict on a soak: what grows is caught by the statistic that lets pass what does not."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from pidgate.gateway.recording.sampling import MOST_REFUSED_IDS
from pidgate.quota.counters import MOST_EXPLAINED, MOST_OWNED_IDS
from tests.soak.clients import WARM_UP_PER_S
from tests.soak.plan import REMEMBERS, SoakPlan
from tests.soak.sampling import NAMES, Sample, SampleFile
from tests.soak.verdict import after_warm_up, growths, lateness_ms, rss_mb_per_h_each

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


def test_who_grows_is_told() -> None:
    supervisor, state_owner, worker = rss_mb_per_h_each(samples(leak_mb_per_h=30))
    assert supervisor == worker == 0
    assert state_owner == pytest.approx(30, rel=0.1)
    *others, last = samples()
    assert rss_mb_per_h_each([*others, replace(last, rss_mb_each="60.0 40.0")]) == []


def test_descriptors_that_are_not_closed_are_caught() -> None:
    assert grown(samples(descriptors_per_h=60)) == {"descriptors"}


def test_lateness_is_of_each_third() -> None:
    assert lateness_ms(samples()) == {
        f"{cause}_{third}": ms
        for third in ("first", "second", "last")
        for cause, ms in (("busy", 1.0), ("no_core", 0.5))
    }


def test_the_warm_up_is_left_out() -> None:
    assert after_warm_up(samples())[0].seconds == TWO_HOURS_S / REMEMBERS
    with pytest.raises(ValueError, match="too few"):
        after_warm_up(samples()[:5])


def test_in_a_soak_everything_is_forgotten_five_times_after_the_warm_up() -> None:
    plan = SoakPlan(hours=2, folder=Path("x"))
    assert plan.duration_s / plan.remember_s - 1 >= 5
    assert (plan.sample_s, plan.life_s) == (15, 300)


def test_a_line_for_each_sample(tmp_path: Path) -> None:
    file = SampleFile(tmp_path / "new" / "soak.csv")
    one = samples()[0]
    file.add(one)
    file.add(replace(one, seconds=30))
    head, *lines = file.path.read_text().splitlines()
    assert head == ",".join(NAMES)
    assert [line.partition(",")[0] for line in lines] == ["15", "30"]


def test_the_warm_up_of_two_hours_fills_what_is_bounded() -> None:
    """Or it fills while growth is measured: 1 MB an hour for each worker."""
    plan = SoakPlan(hours=2, folder=Path())
    ids = WARM_UP_PER_S * plan.duration_s / REMEMBERS
    assert ids > max(MOST_OWNED_IDS, MOST_REFUSED_IDS)
    assert ids > MOST_EXPLAINED
