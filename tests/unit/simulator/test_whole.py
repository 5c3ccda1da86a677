"""All parts together: a fleet of two gateways, and what a run leaves behind."""

import os

import pytest

from tests.simulator.drawing import drawn
from tests.simulator.playing import play
from tests.simulator.schedule import Shape
from tests.support.hash_seeds import printed_by_each


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_fleet_drains_and_leaves_nothing_open(seed: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert play(drawn(seed, Shape.FLEET)).violation == ""
    assert len(os.listdir("/proc/self/fd")) <= before


def test_one_seed_is_one_run_whatever_hashes_are() -> None:
    code = (
        "from tests.simulator.drawing import drawn\n"
        "from tests.simulator.schedule import Shape\n"
        "from tests.simulator.searching import report\n"
        "print(report(drawn(1, Shape.FLEET), shrinks=False))\n"
    )
    assert len(printed_by_each(code)) == 1
