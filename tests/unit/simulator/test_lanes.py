"""Schedules in which lanes carry much: without that, nothing that they might do wrong would be seen."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.simulator.playing import play
from tests.simulator.themes import Theme, aimed
from tests.support.native_core import built

SEEDS: Final = 60
AT_LEAST: Final = {
    "lent": 400,
    "Produce requests": 800,
    "requests": 1_500,
    "taken back": 3,
    "revoked": 30,
    "in a request": 5,
    "in an answer": 5,
    "with requests in flight": 150,
    "with unsent bytes": 5,
}


@pytest.mark.skipif(built() is None, reason="there is no C compiler")
def test_lanes_carry_much_and_everything_happens_to_them() -> None:
    carried: Counter[str] = Counter()
    for seed in range(1, SEEDS + 1):
        result = play(aimed(seed, Theme.LANES))
        assert result.violation == ""
        carried += result.carried
    assert {what: carried[what] for what, least in AT_LEAST.items() if carried[what] < least} == {}
