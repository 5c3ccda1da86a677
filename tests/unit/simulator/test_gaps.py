"""Whom it excuses that a later batch reached a broker before an earlier one: the schedules that brought an excuse."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulator.every import SmallWorld
from tests.simulator.gaps import _Stay
from tests.simulator.playing import play
from tests.simulator.schedule import ClientSetup, QuotaSetup, Schedule, Setup
from tests.simulator.story import setting
from tests.support.breaking import Breach
from tests.support.mutants import BY_SCHEDULE


def _one_gateway(seed: int, client: str, *steps: tuple[object, ...]) -> Schedule:
    quotas = QuotaSetup(rate=2)
    return Schedule(seed, Setup(quotas=quotas, clients=(ClientSetup(client, "java"),)), steps)


BELOW_A_REFUSED_ONE: Final = (
    _one_gateway(
        30967,
        "java-1",
        (0, "rogues", "alice", 1),
        (140, "send", "java-1", 0, 1),
        (145, "send", "java-1", 0, 1),
        (150, "send", "java-1", 0, 2),
        (170, "send", "java-1", 1, 2),
        (176, "move", 1, 1),
        (190, "send", "java-1", 0, 2),
        (191, "send", "java-1", 1, 2),
    ),
    _one_gateway(
        54,
        "java-2",
        (620, "send", "java-2", 0, 2),
        (622, "send", "java-2", 1, 2),
        (624, "move", 1, 1),
        (627, "send", "java-2", 0, 1),
        (631, "send", "java-2", 0, 1),
        (672, "move", 1, 2),
        (727, "send", "java-2", 1, 1),
        (730, "send", "java-2", 0, 1),
        (732, "send", "java-2", 1, 1),
        (733, "move", 0, 2),
        (737, "send", "java-2", 1, 1),
    ),
)
"""A batch below a refused one lifts its refusal, and a later one is answered 45 before it is back (decision 0004)."""


@pytest.mark.parametrize("schedule", BELOW_A_REFUSED_ONE, ids=lambda schedule: str(schedule.seed))
def test_a_batch_below_a_refused_one_excuses_45(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    told = play(schedule, is_told=True)
    assert told.violation == "", setting(schedule)
    assert "with 45" in told.story
    monkeypatch.setattr(_Stay, "was_lifted", lambda *_: False)
    assert Breach.OVERTAKEN in play(schedule).violation


SENT: Final = ("send", "java-1", 0, 1)
COMES_BACK_REFUSED: Final = SmallWorld("java").schedule(
    (
        ("wait", 2_000),
        SENT,
        ("read", "java-1", 1),
        ("move", 0, 2),
        SENT,
        ("read", "java-1", 1),
        SENT,
        ("read", "java-1", 2),
        ("wait", 200),
        SENT,
    )
)
"""Batch 1 finds no leader, is refused at the next one, and passes there; batch 2 was refused behind it."""


def test_a_batch_that_was_refused_itself_excuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(COMES_BACK_REFUSED).violation == ""
    BY_SCHEDULE["an entry does not move on"].breaks(monkeypatch)
    told = play(COMES_BACK_REFUSED, is_told=True)
    assert "with 45" in told.story
    assert Breach.OVERTAKEN in told.violation
