"""All parts together: a fleet of two gateways, and what a run leaves behind."""

import os

import pytest

from tests.simulator.drawing import drawn
from tests.simulator.playing import play
from tests.simulator.schedule import Shape


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_fleet_drains_and_leaves_nothing_open(seed: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert play(drawn(seed, Shape.FLEET)).violation == ""
    assert len(os.listdir("/proc/self/fd")) <= before
