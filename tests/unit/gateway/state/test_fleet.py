"""Who else is there: seen, silent, stopped, different; each told once."""

from typing import Any

from pidgate.events.definitions import ConfigEvent
from pidgate.gateway.state.fleet import GONE_AFTER_MS, SPREADS_MS, Fleet, FleetChange, OwnSettings
from tests.unit.gateway.state.test_event_applier import HOUR_MS, lifecycle

OWN = OwnSettings(HOUR_MS, 24 * HOUR_MS, "enforce")


def config(**changes: Any) -> ConfigEvent:
    given: dict[str, Any] = dict(
        cluster="", gateway_id="gw-2", incarnation="other", seq=2, wall_time_ms=1, decision_time_ms=1,
        quota_version=1, mode="enforce", transactional="observe", window_ms=HOUR_MS, burst=1.0,
        remember_ms=24 * HOUR_MS, layers=4, false_positive_rate=0.001, max_throttle_ms=1, max_live_ids=1,
        queue=1, sticky_entries=1, default_rate_milli=None, cluster_rate_milli=None,
    )  # fmt: skip
    return ConfigEvent(**(given | changes))


def told(changes: list[FleetChange]) -> list[tuple[str, str]]:
    return [(change.kind, change.reason or change.setting) for change in changes]


def test_who_is_silent_is_gone_and_may_come_back() -> None:
    fleet = Fleet(OWN)
    fleet.take(lifecycle(), 1_000, 1_000)
    assert fleet.sweep(GONE_AFTER_MS + 999) == []
    assert told(fleet.sweep(GONE_AFTER_MS + 1_000)) == [("gone", "silent")]
    assert fleet.sweep(GONE_AFTER_MS + 1_000) == []
    assert told(fleet.take(lifecycle(), 200_000, 200_000)) == [("seen", "")]


def test_who_stops_says_so() -> None:
    fleet = Fleet(OWN)
    fleet.take(lifecycle(), 1_000, 1_000)
    assert told(fleet.take(lifecycle(phase="stop"), 2_000, 2_000)) == [("gone", "stop")]
    assert fleet.members() == []
    assert fleet.take(lifecycle(phase="stop"), 2_001, 2_001) == []


def test_who_differs_is_named_once_for_each_setting_and_value() -> None:
    fleet = Fleet(OWN)
    other = lifecycle(mode="observe", window_ms=60_000)
    assert told(fleet.take(other, 0, 0)) == [("seen", ""), ("differs", "window_ms"), ("differs", "mode")]
    assert fleet.take(other, 1, 1) == []
    # It starts again: the same difference is known.
    assert told(fleet.take(lifecycle(mode="observe", window_ms=60_000, incarnation="new"), 2, 2)) == [
        ("seen", "")
    ]
    (differs,) = fleet.take(config(remember_ms=HOUR_MS), 3, 3)
    assert (differs.setting, differs.ours, differs.theirs) == ("remember_ms", 24 * HOUR_MS, HOUR_MS)


def test_when_ours_change_everybody_is_looked_at_again() -> None:
    fleet = Fleet(OWN)
    fleet.take(lifecycle(mode="observe"), 0, 0)
    fleet.set_own(OWN, 1)
    assert fleet.take(lifecycle(mode="observe"), 1, 1) == []
    fleet.set_own(OwnSettings(HOUR_MS, 24 * HOUR_MS, "observe"), 2)
    third = lifecycle(incarnation="third", gateway_id="gw-3")
    assert fleet.take(lifecycle(mode="observe"), 2, 2) == []
    assert told(fleet.take(third, 3, 3)) == [("seen", "")], "a mode takes a moment to be everywhere"
    assert told(fleet.take(third, 3, 2 + SPREADS_MS)) == [("differs", "mode")]


def test_a_mode_that_another_has_just_taken_is_no_difference_yet() -> None:
    fleet = Fleet(OWN)
    assert told(fleet.take(config(mode="observe", quota_version=2), 0, 0)) == [("seen", "")]
    assert told(fleet.take(lifecycle(mode="observe"), 1, 1)) == [("differs", "mode")]
