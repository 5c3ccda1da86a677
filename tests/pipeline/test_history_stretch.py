"""A recording's clock is stretched without anything else being touched."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from pidgate.events.definitions import ConnectionEvent, DecisionEvent, IdUsageEvent
from tests.support.recordings import load
from tests.support.stretched import DURATIONS, MOMENTS, stretched


def test_times_move_and_nothing_else() -> None:
    recorded = load("replay-one-gateway").events
    begin_ms = min(event.wall_time_ms for event in recorded)
    slow = list(stretched(recorded, 60.0, begin_ms=begin_ms))
    touched = {*MOMENTS, *DURATIONS, "decision_time_ms", "seconds"}
    for before, after in zip(recorded, slow, strict=True):
        assert type(before) is type(after)
        kept = asdict(before).keys() - touched
        assert all(getattr(before, name) == getattr(after, name) for name in kept)
        assert after.wall_time_ms - begin_ms == 60 * (before.wall_time_ms - begin_ms)
        if isinstance(before, IdUsageEvent) and isinstance(after, IdUsageEvent):
            assert after.last_ms - after.first_ms == 60 * (before.last_ms - before.first_ms)
        if isinstance(before, ConnectionEvent) and isinstance(after, ConnectionEvent):
            assert after.seconds == 60 * before.seconds


def test_clocks_of_one_machine_stay_together() -> None:
    recorded = [event for event in load("replay-fleet").events if isinstance(event, DecisionEvent)]
    begin_ms = min(event.wall_time_ms for event in recorded)
    slow = list(stretched(recorded, 10.0, begin_ms=begin_ms))
    before = {event.wall_time_ms - event.decision_time_ms for event in recorded}
    after = {event.wall_time_ms - event.decision_time_ms for event in slow}
    assert before == after
    order = [
        event.seq
        for event in sorted(slow, key=lambda event: (event.incarnation, event.wall_time_ms, event.seq))
    ]
    assert order == [
        event.seq
        for event in sorted(recorded, key=lambda event: (event.incarnation, event.wall_time_ms, event.seq))
    ]


def test_a_clock_must_run() -> None:
    with pytest.raises(ValueError, match="clock"):
        list(stretched(load("replay-fleet").events[:1], 0, begin_ms=0))
