"""A replay decides as the gateways did: real ones, recorded, and two of a fleet whose clocks are known.

What `recommend` runs, `QuotaReplay.admit_id`, decides them beside it: of one user's arrivals, each that tokens decide.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pidgate.pipeline.recommend.in_force import settings as settings_of
from pidgate.quota.token_bucket import QuotaReplay
from tests.support.replay import gateway as replayed_gateway
from tests.support.replay.engine import replayed
from tests.support.replay.fleet import recorded_fleet
from tests.support.replay.frame import COMPARED
from tests.support.replay.recorded import without_decision

RECORDINGS = Path(__file__).parent / "recordings"
Events = list[dict[str, Any]]


def recording(name: str) -> Events:
    events = []
    with gzip.open(RECORDINGS / f"{name}.jsonl.gz", "rt") as lines:
        for line in lines:
            record = json.loads(line)
            event = json.loads(record["value"])
            event["kafka_partition"], event["kafka_offset"] = record["partition"], record["offset"]
            event["append_time_ms"] = record["append_time_ms"]
            events.append(event)
    return events


def different(events: Events, given: Iterable[dict[str, Any]] | None = None) -> Counter[str]:
    """How many arrivals differ, by column; `given` is replayed instead of `events`."""
    recorded = {_name(event): event for event in events if event["type"] == "decision"}
    found: Counter[str] = Counter()
    for one in replayed(map(without_decision, events if given is None else given)):
        event = recorded.pop((one.gateway_id, one.incarnation, one.seq))
        found.update(name for name in COMPARED if event[name] != getattr(one, name))
    if given is None:
        assert not recorded, "an arrival was not replayed"
    return found


def _name(event: dict[str, Any]) -> tuple[str, str, int]:
    return event["gateway_id"], event["incarnation"], event["seq"]


@pytest.fixture(scope="module")
def one_gateway() -> Events:
    """Real clients and a real gateway, with a reload and a restart."""
    return recording("replay-one-gateway")


def test_a_recorded_gateway_is_replayed_event_for_event(one_gateway: Events) -> None:
    assert len({event["incarnation"] for event in one_gateway}) > 1, "no restart in it"
    assert any(event.get("quota_version", 0) > 1 for event in one_gateway), "no reload in it"
    assert different(one_gateway) == Counter()


def test_what_was_decided_is_not_looked_at(one_gateway: Events) -> None:
    """Were it looked at, what was recorded wrong would come out wrong."""
    lies = [
        {**event, "decision": "admit", "reason": "exempt", "tokens_before": 7, "tokens_after": 7}
        if event["type"] == "decision"
        else event
        for event in one_gateway
    ]
    said = list(replayed(one_gateway))
    assert list(replayed(lies)) == said
    assert {one.decision for one in said} == {"admit", "refuse"}


def _without_one(events: Events) -> Events:
    """Less one arrival that took a token."""
    charged = [
        e for e in events if e.get("reason") == "first_seen" and e["tokens_before"] != e["tokens_after"]
    ]
    return [event for event in events if event is not charged[len(charged) // 2]]


def _without_reload(events: Events) -> Events:
    return [event for event in events if event["type"] != "config" or event["quota_version"] == 1]


@pytest.mark.parametrize("spoilt", [_without_one, _without_reload])
def test_the_output_follows_from_the_input(one_gateway: Events, spoilt: Callable[[Events], Events]) -> None:
    assert different(one_gateway, spoilt(one_gateway))["tokens_before"] > 0


def test_a_restart_that_forgets_is_noticed(one_gateway: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayed_gateway, "restore", lambda *_: None)
    assert different(one_gateway)["decision"] + different(one_gateway)["reason"] > 0


def test_a_pipeline_whose_refusals_passed_in_silence_goes_on(
    one_gateway: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fleet below has pipelines; without the silent forwards their refresh looks refused."""
    events = recorded_fleet(seed=3, pipelines=True)
    assert different(events) == Counter()
    monkeypatch.setattr(replayed_gateway, "pass_in_silence", lambda *_args, **_words: None)
    assert different(events)["decision"] > 0


def test_two_gateways_that_hear_each_other() -> None:
    """Clocks apart, charges heard late, a restart of one while the other goes on: to the last unit."""
    events = recorded_fleet(seed=1)
    reasons = Counter((event["decision"], event["reason"]) for event in events if event["type"] == "decision")
    assert {("refuse", "first_seen"), ("admit", "queue"), ("admit", "refresh")} <= set(reasons)
    assert different(events) == Counter()


def test_what_was_heard_of_others_counts() -> None:
    events = recorded_fleet(seed=1)
    deaf = [{**event, "applied_offsets": []} if event["type"] == "decision" else event for event in events]
    assert different(events, deaf)["decision"] > 0


@pytest.fixture(scope="module")
def two_gateways() -> Events:
    """Real clients, going from one gateway to the other; both reload, one restarts while the other goes on."""
    return recording("replay-fleet")


def test_a_recorded_fleet_is_replayed_event_for_event(two_gateways: Events) -> None:
    assert len({event["gateway_id"] for event in two_gateways}) == 2
    assert sum(len(event["heard"]) for event in two_gateways if event["type"] == "decision") > 500
    assert different(two_gateways) == Counter()


def _deaf(events: Events) -> Events:
    """Who hears nothing of the other gateway."""
    return [{**event, "applied_offsets": []} if event["type"] == "decision" else event for event in events]


def _heard_some_time(events: Events) -> Events:
    """As gateways told it before they told when they had heard."""
    return [{**event, "heard": []} if event["type"] == "decision" else event for event in events]


def _by_a_clock_5_ms_off(events: Events) -> Events:
    return [
        {**event, "clock_ahead_ms": event["clock_ahead_ms"] + 5} if event.get("clock_ahead_ms") else event
        for event in events
    ]


@pytest.mark.parametrize("spoilt", [_deaf, _heard_some_time, _by_a_clock_5_ms_off])
def test_what_a_fleet_tells_of_itself_is_needed(
    two_gateways: Events, spoilt: Callable[[Events], Events]
) -> None:
    assert different(two_gateways, spoilt(two_gateways))["tokens_before"] > 0


def test_who_is_deaf_decides_otherwise(two_gateways: Events) -> None:
    assert different(two_gateways, _deaf(two_gateways))["decision"] > 0


class Tried:
    """Arrivals of a recording as `recommend` decides them.

    Each user of each process has a `QuotaReplay` at the rate in force. It keeps its own balance; where something else
    moved the recorded one (another gateway's charge, what passed while the user was observed, a reload), it is set to
    that, and counted in `moved`.
    """

    def __init__(self, events: Events, trial: type[QuotaReplay] = QuotaReplay) -> None:
        self.agreed: Counter[str] = Counter()
        self.different: Counter[str] = Counter()
        self.moved = 0
        self._kind = trial
        self._trials: dict[tuple[str, str, str], QuotaReplay] = {}
        self._configs = [event for event in events if event["type"] == "config"]
        recorded = {_name(event): event for event in events if event["type"] == "decision"}
        for one in replayed(map(without_decision, events)):
            event = recorded[one.gateway_id, one.incarnation, one.seq]
            if event["reason"] in ("first_seen", "queue") and event["tokens_before"] is not None:
                self._decide(event, one.waiting)

    def _decide(self, event: dict[str, Any], waiting: int) -> None:
        now_ms, trial = event["decision_time_ms"], self._trial(event)
        if trial.bucket.units(now_ms) != event["tokens_before"]:
            trial.bucket.restore(event["tokens_before"], event["token_units"], now_ms)
            self.moved += 1
        # In line: by its place (of who is admitted there is none any more); else behind all that wait.
        ahead = (event["queue_position"] or 0) if event["reason"] == "queue" else waiting
        is_same = trial.admit_id(ahead, now_ms) is (event["decision"] == "admit")
        is_same &= trial.bucket.units(now_ms) == event["tokens_after"]
        (self.agreed if is_same else self.different)[event["decision"]] += 1

    def _trial(self, event: dict[str, Any]) -> QuotaReplay:
        *process, seq = _name(event)
        config = [one for one in self._configs if [*_name(one)][:2] == process and one["seq"] < seq][-1]
        rates = {one["user"]: one["rate_milli"] for one in config["quotas"]}
        rate_milli = rates.get(event["user"], config["default_rate_milli"])
        name = (*_name(event)[:2], event["user"])
        trial = self._trials.get(name)
        if trial is None or trial.rate_milli != rate_milli:
            assert rate_milli, "tokens decide"
            settings = settings_of(config)
            trial = self._trials[name] = self._kind(rate_milli, settings, event["decision_time_ms"])
        return trial


@pytest.mark.parametrize(
    ("events_of", "agreed", "moved"),
    [
        ("one_gateway", {"refuse": 870, "admit": 157}, 2),
        ("two_gateways", {"refuse": 1105, "admit": 182}, 126),
    ],
)
def test_recommend_decides_what_gateways_decided(
    request: pytest.FixtureRequest, events_of: str, agreed: dict[str, int], moved: int
) -> None:
    tried = Tried(request.getfixturevalue(events_of))
    assert tried.different == Counter()
    assert tried.agreed == agreed
    assert tried.moved == moved, "else it is the recording that keeps the balance"


class _ForgetsWhoWaits(QuotaReplay):
    def admit_id(self, ahead: int, at_ms: int) -> bool:
        return super().admit_id(0, at_ms)


class _ChargesNothing(QuotaReplay):
    def admit_id(self, ahead: int, at_ms: int) -> bool:
        return not self.bucket.wait_ms(ahead, at_ms)


class _ChargesTheRefused(QuotaReplay):
    def admit_id(self, ahead: int, at_ms: int) -> bool:
        is_admitted = not self.bucket.wait_ms(ahead, at_ms)
        self.bucket.charge(at_ms)
        return is_admitted


@pytest.mark.parametrize("mutant", [_ForgetsWhoWaits, _ChargesNothing, _ChargesTheRefused])
@pytest.mark.parametrize("events_of", ["one_gateway", "two_gateways"])
def test_a_recommend_that_decides_otherwise_is_noticed(
    request: pytest.FixtureRequest, events_of: str, mutant: type[QuotaReplay]
) -> None:
    assert Tried(request.getfixturevalue(events_of), mutant).different.total() > 10
