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
    "lent": 300,
    "Produce requests": 500,
    "requests": 1_000,
    "taken back": 2,
    "revoked": 20,
    "in a request": 5,
    "in an answer": 5,
    "with requests in flight": 80,
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
