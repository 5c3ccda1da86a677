"""The console finds what is labelled in a recording of real clients, as Spark does (test_offenders_recordings.py)."""

from __future__ import annotations

from pidgate.who.findings import findings
from pidgate.who.painting import user_pictures
from pidgate.who.picture import Window
from pidgate.who.tally import Tally
from tests.support.recordings import load
from tests.support.stretched import stretched

PACE = 60.0
"""An hour for each recorded minute."""
NOT_TOLD_APART = {"scaling-app"}
"""Two minutes hold one rise and fall of its load: too few to be called a habit."""


def test_real_clients_are_told_apart() -> None:
    recording = load("patterns")
    begin_ms = min(event.wall_time_ms for event in recording.events)
    tally = Tally()
    end_ms = begin_ms
    for event in stretched(recording.events, PACE, begin_ms=begin_ms):
        tally.add(event)
        end_ms = max(end_ms, event.wall_time_ms)
    window = Window(begin_ms, end_ms, begin_ms)
    found = {
        user.user: {finding.kind.value for finding in findings(user, window)}
        for user in user_pictures(tally, window, None)
    }

    expected = {
        user: set(patterns) for user, patterns in recording.labels.items() if user not in NOT_TOLD_APART
    }
    assert {user: found[user] for user in expected} == expected
    assert not found["scaling-app"] & {"restart_loop", "producer_per_batch", "producer_per_error"}
