"""The stored recordings are readable, whole, and contain what they say."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TypeVar

import pytest

from pidgate.events.definitions import (
    EVENT_TYPES,
    ConfigEvent,
    ConnectionEvent,
    DecisionEvent,
    Event,
    InitProducerIdEvent,
    LifecycleEvent,
    ProduceErrorEvent,
    RefusalOutcomeEvent,
)
from pidgate.events.writing import to_json
from pidgate.findings.patterns import HARMFUL, Pattern
from pidgate.findings.rules import PATTERNS
from tests.support.recordings import Recording, load, names

_E = TypeVar("_E", bound=Event)
MESSAGE_TOO_LARGE = 10


def of(recording: Recording, kind: type[_E]) -> list[_E]:
    return [event for event in recording.events if isinstance(event, kind)]


def missing(recording: Recording) -> list[tuple[str, int]]:
    """(incarnation, seq) of what is not there, though something after it is."""
    seen: dict[str, list[int]] = defaultdict(list)
    for event in recording.events:
        seen[event.incarnation].append(event.seq)
    return [
        (incarnation, seq)
        for incarnation, numbers in seen.items()
        for seq in range(1, max(numbers) + 1)
        if seq not in set(numbers)
    ]


@pytest.fixture(scope="module", params=["replay-one-gateway", "replay-fleet", "patterns"])
def recording(request: pytest.FixtureRequest) -> Recording:
    return load(request.param)


def test_all_are_looked_at() -> None:
    assert names() == ["patterns", "replay-fleet", "replay-one-gateway"]


def test_it_is_whole(recording: Recording) -> None:
    assert missing(recording) == []
    assert len({(event.incarnation, event.seq) for event in recording.events}) == len(recording.records)
    by_partition: dict[int, list[int]] = defaultdict(list)
    for record in recording.records:
        by_partition[record.partition].append(record.offset)
    for offsets in by_partition.values():
        assert offsets == list(range(len(offsets)))
    assert {event.type for event in recording.events} <= set(EVENT_TYPES)
    last = {
        event.gateway_id: event for event in sorted(recording.events, key=lambda event: event.wall_time_ms)
    }
    assert {event.type for event in last.values()} == {"lifecycle"}
    assert set(last) == set(recording.story["gateways"])


def test_a_lost_record_would_be_noticed() -> None:
    whole = load("replay-fleet")
    without = Recording(whole.name, [*whole.records[:100], *whole.records[101:]], whole.labels, whole.story)
    lost = whole.records[100].event
    assert missing(without) == [(lost.incarnation, lost.seq)]


def test_values_are_those_of_the_topic(recording: Recording) -> None:
    for record in recording.records[:200]:
        assert to_json(record.event) == record.value
        assert -5_000 < record.append_time_ms - record.event.wall_time_ms < 60_000


@pytest.mark.parametrize("name", ["replay-one-gateway", "replay-fleet"])
def test_what_makes_a_replay_hard_is_there(name: str) -> None:
    recording = load(name)
    decided = of(recording, DecisionEvent)
    reasons = Counter((event.decision, event.reason) for event in decided)
    for wanted in (
        ("admit", "first_seen"), ("admit", "queue"), ("admit", "refresh"), ("admit", "exempt"), ("admit", "observe"),
        ("refuse", "first_seen"), ("refuse", "queue"), ("refuse", "deadline"), ("refuse", "blocked"),
    ):  # fmt: skip
        assert reasons[wanted] > 0, wanted
    assert any(event.would_refuse for event in decided)
    assert all(event.suppressed_count == 0 for event in decided)
    assert {event.outcome for event in of(recording, RefusalOutcomeEvent)} == {"admitted", "gave_up"}
    software = {event.software_name for event in of(recording, ConnectionEvent)}
    assert len(software) >= 3

    configs = of(recording, ConfigEvent)
    reloaded = [event for event in configs if event.quota_version > 1]
    assert {event.gateway_id for event in reloaded} == set(recording.story["gateways"])
    for event in reloaded:
        (first,) = [one for one in configs if one.incarnation == event.incarnation and one.quota_version == 1]
        assert first.quotas != event.quotas
        assert {one.quota_version for one in decided if one.incarnation == event.incarnation} == {1, 2}
    starts = Counter(event.gateway_id for event in of(recording, LifecycleEvent) if event.phase == "start")
    assert max(starts.values()) == 2
    restored = [event for event in of(recording, LifecycleEvent) if event.restored_from == "topic"]
    assert max(event.restored_ids for event in restored) > 20


def test_two_gateways_knew_of_each_other() -> None:
    decided = of(load("replay-fleet"), DecisionEvent)
    through = defaultdict(set)
    for event in decided:
        through[event.producer_id].add(event.gateway_id)
    assert sum(len(gateways) == 2 for gateways in through.values()) > 20
    assert all(len(event.applied_offsets) == 3 for event in decided if event.reason == "first_seen")
    by_gateway: dict[str, int] = defaultdict(int)
    for event in decided:
        by_gateway[event.gateway_id] = max(by_gateway[event.gateway_id], sum(event.applied_offsets))
    assert min(by_gateway.values()) > 500


def test_each_pattern_was_played() -> None:
    recording = load("patterns")
    expected = {one.value for one in PATTERNS - {Pattern.PRODUCER_PER_TASK}}
    assert {word for words in recording.labels.values() for word in words} == expected
    decided = of(recording, DecisionEvent)
    assert {event.reason for event in decided} == {"observe"}
    ids: dict[str, set[int]] = defaultdict(set)
    for event in decided:
        ids[event.user].add(event.producer_id)
    assert set(ids) == set(recording.labels)
    harmful = {pattern.value for pattern in HARMFUL}
    for user, words in recording.labels.items():
        assert (len(ids[user]) >= 15) or not harmful & set(words), user
    assert len(ids["steady-app"]) == 4
    assert len(ids["rolling-app"]) == 18
    assert len(ids["seldom-app"]) == 1
    rogue = {event.producer_id for event in decided if event.client_id in recording.story["rogue_clients"]}
    assert rogue & ids["mixed-app"]
    assert ids["mixed-app"] - rogue
    assert not rogue & ids["steady-app"]

    (nat,) = {event.address for event in decided if event.user == "nat-office"}
    assert nat.startswith("127.0.20.")
    assert {event.client_id for event in decided if event.user == "namesakes"} == {"agent"}
    assert len({event.address for event in decided if event.user == "namesakes"}) == 20
    transactional = {event.transactional_id_hash for event in decided if event.user == "random-txn-app"}
    assert len(transactional) == len(ids["random-txn-app"])
    codes = Counter(event.code for event in of(recording, ProduceErrorEvent) if event.user == "per-error-app")
    assert codes[MESSAGE_TOO_LARGE] >= len(ids["per-error-app"]) - 1
    software = {event.software_name for event in of(recording, InitProducerIdEvent)}
    assert len(software) >= 3
