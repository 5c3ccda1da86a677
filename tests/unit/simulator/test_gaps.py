"""Whom it excuses that a later batch reached a broker before an earlier one: the schedules that brought an excuse."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulator.every import SmallWorld
from tests.simulator.gaps import _Stay
from tests.simulator.playing import play
from tests.simulator.schedule import ClientSetup, QuotaSetup, Schedule, Setup, Shape
from tests.simulator.story import setting
from tests.support.breaking import Breach
from tests.support.mutants import BY_SCHEDULE


def _one_gateway(seed: int, client: str, *steps: tuple[object, ...]) -> Schedule:
    quotas = QuotaSetup(rate=2)
    return Schedule(seed, Setup(quotas=quotas, clients=(ClientSetup(client, "java"),)), steps)


BELOW_A_REFUSED_ONE: Final = (
    _one_gateway(
        288,
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
        84,
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


KNOWN: Final = Setup(
    partitions=3,
    is_long_known=True,
    fresh_partitions=0,
    quotas=QuotaSetup(rate=1, producer_byte_rate=40),
    clients=(ClientSetup("java-1", "java"),),
)
AWAITED_ELSEWHERE: Final = {
    "its connection is muted for its bytes": Schedule(
        1,
        KNOWN,
        (
            (100, "move", 2, 2),
            (105, "refresh", "java-1"),
            (200, "send", "java-1", 0, 1),
            (329, "late answers", "java-1", 2, 0, 4_000),
            (330, "send", "java-1", 1, 3),
            (350, "send", "java-1", 2, 1),
            (400, "move", 2, 1),
            (404, "refresh", "java-1"),
            (450, "send", "java-1", 2, 1),
            (1_000, "wait"),
        ),
    ),
    "it is behind another held request": _one_gateway(
        702809,
        "java-2",
        (625, "send", "java-2", 0, 1),
        (1_622, "move", 0, 2),
        (1_821, "send", "java-2", 0, 1),
        (1_827, "move", 0, 1),
        (1_831, "send", "java-2", 1, 1),
        (1_831, "send", "java-2", 0, 1),
        (1_841, "send", "java-2", 0, 1),
    ),
    "without a gateway": Schedule(
        1,
        Setup(Shape.DIRECT, clients=(ClientSetup("java-1", "java"),)),
        (
            (600, "send", "java-1", 0, 1),
            (1_600, "move", 0, 2),
            (1_605, "refresh", "java-1"),
            (1_650, "send", "java-1", 0, 1),
            (1_699, "hold", "broker-2", 0, 100),
            (1_699, "hold", "broker-2", 1, 100),
            (1_700, "send", "java-1", 0, 1),
            (1_710, "move", 0, 1),
            (1_715, "refresh", "java-1"),
            (1_740, "send", "java-1", 0, 1),
            (2_500, "wait"),
        ),
    ),
}
"""A batch waits on its way to one node. Its partition's leader moves, and the new one answers the next batch 45."""


@pytest.mark.parametrize("where", AWAITED_ELSEWHERE)
def test_a_batch_that_waits_at_another_node_excuses_45(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = AWAITED_ELSEWHERE[where]
    told = play(schedule, is_told=True)
    assert told.violation == "", setting(schedule)
    assert "with 45" in told.story
    monkeypatch.setattr(_Stay, "was_awaited_elsewhere", lambda *_: False)
    assert (Breach.OVERTAKEN in play(schedule).violation) is (schedule.setup.shape is Shape.ONE)


REFUSED_ELSEWHERE: Final = SmallWorld("java").schedule(
    (("wait", 2_000), SENT, ("read", "java-1", 1), ("lead", 0, 2), SENT, ("lead", 0, 1), SENT)
)
"""Batch 1 is refused at one node. Its partition's leader moves back to where batch 0 passed, and batch 2 goes there."""


def test_a_batch_that_was_refused_at_another_node_excuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(REFUSED_ELSEWHERE).violation == ""
    BY_SCHEDULE["an entry is in nobody's way"].breaks(monkeypatch)
    told = play(REFUSED_ELSEWHERE, is_told=True)
    assert "with 45" in told.story
    assert Breach.OVERTAKEN in told.violation


IN_ORDER: Final = {
    "both behind a mute": Schedule(
        51,
        Setup(
            quotas=QuotaSetup(rate=1, window_ms=2_000, max_throttle_ms=1_000),
            clients=(ClientSetup("librdkafka-1", "librdkafka"), ClientSetup("librdkafka-2", "librdkafka")),
        ),
        (
            (0, "rogues", "alice", 3),
            (125, "send", "librdkafka-2", 0, 1),
            (131, "move", 0, 2),
            (1_125, "mode", None, False),
            (1_145, "send", "librdkafka-2", 0, 1),
            (1_149, "send", "librdkafka-2", 0, 1),
            (1_151, "move", 0, 1),
        ),
    ),
    "without a gateway": Schedule(
        1,
        Setup(Shape.DIRECT, clients=(ClientSetup("librdkafka-1", "librdkafka"),)),
        (
            (200, "send", "librdkafka-1", 1, 1),
            (500, "read on demand", "librdkafka-1"),
            (600, "move", 0, 2),
            (610, "send", "librdkafka-1", 0, 1),
            (640, "move", 0, 1),
            (650, "send", "librdkafka-1", 0, 1),
            (700, "wait"),
        ),
    ),
}
"""A broker that is not the leader refuses a batch, gets the lead, and takes the next one of the same pipeline."""


@pytest.mark.parametrize("where", IN_ORDER)
def test_two_batches_that_left_in_order_excuse_a_lost_one(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = IN_ORDER[where]
    told = play(schedule, is_told=True)
    assert told.violation == "", setting(schedule)
    assert "acked 0/0 at -1" in told.story, "its client believes in it, and it is lost"
    monkeypatch.setattr(_Stay, "left_in_order", lambda *_: False)
    assert (Breach.OVERTAKEN in play(schedule).violation) is (schedule.setup.shape is Shape.ONE)
