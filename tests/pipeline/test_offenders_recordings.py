"""Real clients through a real gateway: the patterns are found in what it told of them, at an hour for each minute."""

from __future__ import annotations

from pidgate.pipeline.passes import OFFENDERS
from tests.pipeline.made_events import results, rows_of_events
from tests.support.recordings import load
from tests.support.stretched import stretched

PACE = 60.0
NOT_TOLD_APART = {"scaling-app"}
"""Two minutes hold one rise and fall of its load: too few to be called a habit."""


def test_real_clients_are_told_apart() -> None:
    recording = load("patterns")
    begin_ms = min(event.wall_time_ms for event in recording.events)
    rows = rows_of_events(stretched(recording.events, PACE, begin_ms=begin_ms))
    found: dict[str, set[str]] = {}
    for row in results(rows, OFFENDERS)["offenders"]:
        found.setdefault(row["user"], set()).add(row["pattern"])
    expected = {
        user: set(patterns) for user, patterns in recording.labels.items() if user not in NOT_TOLD_APART
    }
    assert {user: found[user] for user in expected} == expected
    assert not found["scaling-app"] & {"restart_loop", "producer_per_batch", "producer_per_error"}
