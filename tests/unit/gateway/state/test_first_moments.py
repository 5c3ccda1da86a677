"""What passes before the state is restored: it is no history, and under a grace it counts as granted."""

from __future__ import annotations

from typing import Any

import pytest

from pidgate.events.writing import to_json
from pidgate.gateway.state.event_applier import EventApplier
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.decisions import Reason
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support.questions import question
from tests.unit.gateway.state.test_decision_scan import decision

HOUR_MS = 3_600_000
NOW_MS, WALL_MS = 50 * HOUR_MS, 1_763_000_000_000


def quota(mode: Mode = Mode.ENFORCE) -> ProducerIdQuota:
    quotas = Quotas(mode=mode, producer_ids=ProducerIdSettings(), default=UserQuota.per_window(10))
    return ProducerIdQuota(quotas, lambda: 1_234_567, 0)


def absorbed(state: ProducerIdQuota, *events: dict[str, Any]) -> EventApplier:
    applier = EventApplier("me")
    records = [
        EventRecord(0, offset, event["wall_time_ms"], to_json(decision(**event)))
        for offset, event in enumerate(
            {"wall_time_ms": WALL_MS - 100, "decision_time_ms": NOW_MS - 100, **event} for event in events
        )
    ]
    applier.restore(records, state.restorer, NOW_MS, WALL_MS)
    applier.finish_restore(state.restorer)
    return applier


def test_own_events_are_not_restored() -> None:
    state = quota()
    absorbed(state, {"incarnation": "me", "producer_id": 1, "reason": "restoring"})
    assert not state.table.remembers("alice", 1, NOW_MS)


def test_events_of_an_earlier_run_are_restored() -> None:
    state = quota()
    absorbed(state, {"incarnation": "me, an hour ago", "producer_id": 1})
    assert state.table.remembers("alice", 1, NOW_MS)


@pytest.mark.parametrize(
    ("event", "is_history"),
    [
        ({"incarnation": "other", "reason": "first_seen"}, True),
        ({"incarnation": "other", "reason": "refresh"}, True),
        ({"incarnation": "other", "reason": "deadline", "decision": "refuse"}, True),
        # Of a gateway that starts at the same moment.
        ({"incarnation": "other", "reason": "restoring"}, False),
        ({"incarnation": "other", "reason": "fail_open"}, False),
        ({"incarnation": "other", "reason": "grace"}, False),
        ({"incarnation": "me", "reason": "first_seen"}, False),
    ],
)
def test_only_what_a_gateway_with_a_state_decided_is_history(
    event: dict[str, Any], *, is_history: bool
) -> None:
    assert absorbed(quota(), event).history.is_known is is_history


def test_a_grace_counts_what_was_let_in_before_the_restart_each_id_once() -> None:
    state = quota()
    told = [{"incarnation": "other", "producer_id": n, "reason": "grace"} for n in range(60)]
    early = [
        {
            "incarnation": "other",
            "producer_id": n,
            "reason": "restoring",
            "tokens_after": None,
            "token_units": None,
        }
        for n in range(50, 90)
    ]
    # By a state that only observed: no part of any grace.
    observed = [{"incarnation": "other", "producer_id": n, "reason": "observe"} for n in range(200, 300)]
    absorbed(state, *told, *early, *told, *observed)
    assert state.table.live("alice", 0).grace_admitted == 90
    state.begin_grace(NOW_MS + HOUR_MS)
    reasons = [state.decide(*question("alice", n), NOW_MS).decisions[0].reason for n in range(100, 111)]
    assert reasons[:10] == [Reason.GRACE] * 10
    assert reasons[10] is Reason.FIRST_SEEN, "by the bucket again"


@pytest.mark.parametrize(("mode", "tokens", "granted"), [(Mode.ENFORCE, 10, 5), (Mode.OBSERVE, 5, 0)])
def test_under_a_grace_what_passed_in_the_first_moments_is_not_charged(
    mode: Mode, tokens: int, granted: int
) -> None:
    state = quota(mode)
    state.is_restored = False
    for producer_id in range(5):
        state.decide(*question("alice", producer_id), NOW_MS)
    state.begin_grace(NOW_MS + HOUR_MS)
    assert state.hand_over(NOW_MS) == 0
    state.end_restoring()
    assert state.status("alice", NOW_MS).tokens == tokens
    assert state.table.live("alice", 0).grace_admitted == granted
